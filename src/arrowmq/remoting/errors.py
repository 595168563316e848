"""What can go wrong between two peers, seen from the side that asked. Every error names the address it is about."""

from __future__ import annotations


class RemotingError(Exception):
    """A request could not be carried to the peer, or its answer not back."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectFailed(RemotingError):
    """No connection came about: nothing of the request has reached the peer, so it is safe to repeat it."""


class RequestTimeout(RemotingError):
    """No answer came in time: the peer may or may not have done what was asked."""


class ConnectionLost(RemotingError):
    """The connection ended while the answer was awaited: the peer may or may not have done what was asked."""
