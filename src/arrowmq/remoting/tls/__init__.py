"""TLS of connections: what settings mean, files that are renewed, and the layers that encrypt.

In: Apache's TLS settings and the files they name, and accepted connections whose first bytes are a TLS hello. Out:
contexts for the next connection, and transports whose bytes are encrypted.
"""
