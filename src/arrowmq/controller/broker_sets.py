"""What is decided of a set of brokers with one name: who belongs to it, who is master, who may become it.

These values are what storages keep, as JSON. They are never changed in place: a decision makes a new one.
"""

from __future__ import annotations

import msgspec

FIRST_BROKER_ID = 1
MAX_SWITCHES = 20  # how many of the last elections a set remembers, for operators
DEFAULT_LEASE_MS = 10_000  # a broker that does not say how long it may be silent


class BrokerSetError(ValueError):
    """Kept bytes that are no broker set."""


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    address: str
    check_code: str  # made by the broker when it applied for its id, so that it can apply twice for the same one


class Switch(msgspec.Struct, frozen=True, rename="camel"):
    """An election that changed the master, or left the set without one (`master_id` None)."""

    epoch: int
    previous_id: int | None
    master_id: int | None
    reason: str
    at_ms: int
    took_ms: int  # from the moment the master was missed, or the election asked for, to the decision being kept


class BrokerSet(msgspec.Struct, frozen=True, rename="camel"):
    """`master_epoch` rises with every election, `sync_state_set_epoch` with every change of the sync state set.

    Invariant: a master is a replica and a member of the sync state set. The set may outlive its master: without one,
    only its members may become master.
    """

    cluster: str
    name: str
    next_broker_id: int = FIRST_BROKER_ID
    replicas: dict[int, Replica] = {}
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0
    master_lease_ms: int = DEFAULT_LEASE_MS  # how long the master may be silent before another is elected
    switches: tuple[Switch, ...] = ()

    def __post_init__(self) -> None:
        if self.master_id is not None and not (
            self.master_id in self.replicas and self.master_id in self.sync_state_set
        ):
            raise BrokerSetError(f"broker set {self.name}: its master {self.master_id} is no in-sync replica of it")
        if any(member not in self.replicas for member in self.sync_state_set):
            raise BrokerSetError(f"broker set {self.name}: its sync state set names a broker that it does not have")

    @property
    def master_address(self) -> str | None:
        return None if self.master_id is None else self.replicas[self.master_id].address

    @property
    def is_before_first_election(self) -> bool:
        return self.master_epoch == 0


def encode(broker_set: BrokerSet) -> bytes:
    return msgspec.json.encode(broker_set)


def decode(data: bytes) -> BrokerSet:
    """Raises `BrokerSetError`."""
    try:
        return msgspec.json.decode(data, type=BrokerSet)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BrokerSetError(f"this is no broker set: {error}") from error
