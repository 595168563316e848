"""The descriptor pool of the proxy's messages, with Google's well-known types that they use."""

from __future__ import annotations

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
for _module in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
