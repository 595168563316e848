"""Bytes <-> values of RocketMQ's protocol and files, without any I/O.

In: bytes of frames (`frame`), of header fields (`headers`), of JSON bodies (`bodies`, `fastjson`), of messages
(`record`, `batch`, `properties`, `compression`).
Out: typed values, and from values the bytes that the Apache software writes.
Knows nothing of sockets, files or clocks. Whatever is wrong with its input is told by the errors of `errors`.
"""
