"""What every storage of decisions must do; each storage's tests run these."""

from __future__ import annotations

import pytest

from arrowmq.controller.broker_sets import BrokerSet, Replica
from arrowmq.controller.storage import Kept, StaleDecision, Storage


def broker_set(name: str = "b", epoch: int = 0) -> BrokerSet:
    return BrokerSet("c", name, 2, {1: Replica("h:1", "h:1;1")}, master_epoch=epoch)


async def check_that_decisions_last(storage: Storage) -> None:
    assert {} == await storage.load()
    first = await storage.commit("b", 0, broker_set())
    second = await storage.commit("b", first, broker_set(epoch=1))
    assert second > first
    assert {"b": Kept(broker_set(epoch=1), second)} == await storage.load()


async def check_that_a_stale_decision_changes_nothing(storage: Storage) -> None:
    first = await storage.commit("b", 0, broker_set())
    second = await storage.commit("b", first, broker_set(epoch=1))
    for based_on in (0, first, second + 1):
        with pytest.raises(StaleDecision):
            await storage.commit("b", based_on, broker_set(epoch=9))
        with pytest.raises(StaleDecision):
            await storage.commit("b", based_on, None)
    assert {"b": Kept(broker_set(epoch=1), second)} == await storage.load()


async def check_that_a_set_can_be_forgotten(storage: Storage) -> None:
    revision = await storage.commit("b", 0, broker_set())
    await storage.commit("b", revision, None)
    assert {} == await storage.load()
    await storage.commit("b", 0, broker_set(epoch=5))
    assert 5 == (await storage.load())["b"].broker_set.master_epoch


CHECKS = [
    check_that_decisions_last,
    check_that_a_stale_decision_changes_nothing,
    check_that_a_set_can_be_forgotten,
]
