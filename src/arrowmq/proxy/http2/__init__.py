"""HTTP/2, the server's side: a core that knows no sockets, and the connection that feeds it.

In: bytes of a connection; headers, data and trailers to send. Out: events of streams (`events.py`); bytes to write.
`core.py` says what a core does and which one is used: the pure-Python reference stands on the `h2` library, the native
one is held to it by tests. Knows nothing of gRPC.
"""
