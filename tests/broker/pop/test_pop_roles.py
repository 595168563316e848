"""Goal: a broker that is no master takes nothing back; when it is one again it goes on from its log."""

from __future__ import annotations

from typing import Any

import pytest
from popping import INVISIBLE_MS, Popping

from arrowmq.broker.role import Role
from arrowmq.wire.codes import ResponseCode


@pytest.mark.parametrize("merging", ["false", "true"], ids=["stored", "merged"])
async def test_reviving_is_a_masters_duty(make_node: Any, merging: str) -> None:
    node = await make_node(enablePopBufferMerge=merging)
    for body in (b"a", b"b"):
        await node.client.send("orders", body)
    popping = Popping(node)
    messages = (await popping.pop()).messages
    await popping.ack(messages[0])
    node.broker.services.pop_revive.merging.write_all()
    await node.broker.role.become(Role.SLAVE, broker_id=1, epoch=1)
    await node.clock.advance(INVISIBLE_MS / 1000 + 1)
    assert 0 == node.broker.store.max_offset("%RETRY%G_orders", 0)
    assert ResponseCode.SYSTEM_ERROR == (await popping.ack(messages[1])).code
    await node.broker.role.become(Role.ASYNC_MASTER, broker_id=0, epoch=2)
    await node.clock.advance(1)
    assert [b"b"] == (await popping.pop()).bodies
