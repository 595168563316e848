"""How a JSON body is declared: a struct whose members carry Java's names (camel case unless stated), all with defaults.

Members that are None are not written, and null is read as absent, as fastjson does both.
"""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """A JSON object of the protocol. Sets of Java are lists here, in the order in which they came."""


class DataVersion(Body, kw_only=True):
    """The version of a table that brokers and NameServers compare; equal only if all three are."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0
