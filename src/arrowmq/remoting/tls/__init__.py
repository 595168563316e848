"""TLS of connections: what settings mean, files that are renewed, and how bytes are encrypted.

`settings` makes contexts, `reload` renews them. `transport` encrypts accepted remoting connections. `start` puts the
event loop's own layer on connections of other protocols.

In: Apache's TLS settings and the files they name, and accepted connections whose first bytes are a TLS hello. Out:
contexts for the next connection, and transports whose bytes are encrypted.
"""
