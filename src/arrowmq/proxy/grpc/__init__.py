"""gRPC on HTTP/2 streams: five bytes before each message, a method in the path, metadata in the headers, a status
in the trailers.

In: events of streams (`http2.events`). Out: calls of the methods in a table (`methods.py`), with their request as a
protobuf message; what they answer goes back. Knows nothing of RocketMQ; health and reflection are here.
"""
