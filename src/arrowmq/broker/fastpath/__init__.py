"""The fast path: frequent requests served natively from the socket's bytes to the store and back.

In: whole frames of a connection. Out: how many bytes were served, and the answers. Never refuses anything: what it does
not know goes to the general path, which decides. A differential test shows that both leave the same bytes.
"""
