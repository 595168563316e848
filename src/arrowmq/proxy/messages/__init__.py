"""The messages of the gRPC protocols that the proxy speaks, and their Python classes.

The `.proto` files are ours; `tools/protobuf_classes.py` makes the `_pb2` modules of them (never edit those by hand).
The classes live in a descriptor pool of their own (`pool.py`): a program that has RocketMQ's own Python client loaded
beside ArrowMQ would otherwise have two files for the same names.

In: the bytes of a message. Out: its values by the protocol's names, and back.
"""
