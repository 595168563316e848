"""The body of a registration, in its three forms.

from version 37 on     JSON, RegisterBrokerBody
with `compressed`      zlib over: DataVersion JSON, topics as lines of text, filter servers JSON, and from version
                       413 on the queue mappings; each with its length, each list with its count, in front
before version 37      JSON, the topic table alone
"""

from __future__ import annotations

import zlib

from arrowmq.namesrv.tables import Registration
from arrowmq.remoting.channel import Channel
from arrowmq.wire import fastjson
from arrowmq.wire.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from arrowmq.wire.checksum import crc32
from arrowmq.wire.errors import BodyError
from arrowmq.wire.headers import RegisterBroker

VERSION_WITH_BODY = 37  # V3_0_11
VERSION_WITH_MAPPINGS = 413  # V5_0_0
MAX_INFLATED_BYTES = 256 * 1024 * 1024


class ChecksumMismatch(Exception):
    """The body is not the one that the header's checksum was made of."""


def read_registration(request: RegisterBroker, body: bytes, version: int, connection: Channel) -> Registration:
    """What the broker says of itself. Raises `ChecksumMismatch` or `BodyError`."""
    if request.body_crc32 and request.body_crc32 != crc32(body):
        raise ChecksumMismatch
    content = _read_body(body, version, is_compressed=bool(request.compressed))
    wrapper = content.topic_config_serialize_wrapper
    return Registration(
        cluster=request.cluster_name,
        broker_name=request.broker_name,
        broker_id=request.broker_id,
        address=request.broker_addr,
        ha_address=request.ha_server_addr,
        zone_name=request.zone_name,
        heartbeat_timeout_ms=request.heartbeat_timeout_millis,
        enable_acting_master=request.enable_acting_master,
        data_version=wrapper.data_version,
        topics=wrapper.topic_config_table,
        topic_queue_mappings=wrapper.topic_queue_mapping_info_map or {},
        filter_servers=content.filter_server_list,
        connection=connection,
    )


def _read_body(body: bytes, version: int, *, is_compressed: bool) -> RegisterBrokerBody:
    if not body:
        return RegisterBrokerBody()
    if version < VERSION_WITH_BODY:
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=fastjson.loads(body, TopicConfigSerializeWrapper),
        )
    if is_compressed:
        return _read_compressed(body, version)
    return fastjson.loads(body, RegisterBrokerBody)


class _Reader:
    """Takes big-endian numbers and counted strings out of the inflated body, checking each length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        end = self._position + 4
        if end > len(self._data):
            raise BodyError("the compressed registration ends inside a number", self._position)
        value = int.from_bytes(self._data[self._position : end], "big", signed=True)
        if value < 0:
            raise BodyError(f"the compressed registration holds a length of {value}", self._position)
        self._position = end
        return value

    def counted(self) -> bytes:
        length = self.number()
        if length > len(self._data) - self._position:
            raise BodyError(f"the compressed registration ends inside a string of {length} bytes", self._position)
        self._position += length
        return self._data[self._position - length : self._position]

    @property
    def is_at_end(self) -> bool:
        return self._position >= len(self._data)


def _read_compressed(body: bytes, version: int) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise BodyError(f"the registration says it is compressed and is not: {error}") from error
    if inflater.unconsumed_tail:
        raise BodyError(f"the registration inflates to more than {MAX_INFLATED_BYTES} bytes")
    reader = _Reader(data)
    data_version = fastjson.loads(reader.counted(), DataVersion)
    topics = [_read_topic(reader.counted()) for _ in range(reader.number())]
    filter_servers = fastjson.loads(reader.counted() or b"[]", list[str])
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= VERSION_WITH_MAPPINGS and not reader.is_at_end:
        for _ in range(reader.number()):
            mapping = fastjson.loads(reader.counted(), TopicQueueMappingInfo)
            mappings[mapping.topic or ""] = mapping
    return RegisterBrokerBody(
        filter_server_list=filter_servers,
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=data_version,
            topic_config_table={topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map=mappings,
        ),
    )


def _read_topic(line: bytes) -> TopicConfig:
    """`name readQueues writeQueues perm filterType [attributes]`; order and sys flag do not survive this form."""
    words = line.decode("utf-8", "replace").split(" ", 5)
    try:
        name, read_queues, write_queues, perm, filter_type = words[:5]
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=int(read_queues),
            write_queue_nums=int(write_queues),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError:
        raise BodyError(f"{line[:80]!r} is no topic: expected name, read queues, write queues, perm, filter") from None
    if len(words) == 6 and words[5].strip():
        topic.attributes = fastjson.loads(words[5].encode(), dict[str, str])
    return topic
