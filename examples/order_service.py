"""An order service and its billing: a transaction, an ordered topic, retries, and a graceful end.

arrowmq server &
python examples/order_service.py localhost:9876
"""

from __future__ import annotations

import asyncio
import json
import sys

import arrowmq

ORDERS = 20


async def take_orders(namesrv: str) -> None:
    """Each order is announced only if it could be saved; its steps stay in order."""
    saved: set[str] = set()

    def check(message: arrowmq.ReceivedMessage) -> arrowmq.TransactionState:
        is_saved = message.keys[0] in saved
        return arrowmq.TransactionState.COMMIT if is_saved else arrowmq.TransactionState.ROLLBACK

    async with arrowmq.Producer(namesrv, group="order-service", transaction_checker=check) as producer:
        for number in range(ORDERS):
            order = f"o-{number}"
            async with producer.transaction("orders", json.dumps({"order": order}).encode(), keys=[order]):
                saved.add(order)
            for step in ("paid", "packed", "shipped"):
                await producer.send("order-steps", step.encode(), keys=[order], order_key=order)


async def bill(namesrv: str) -> None:
    billed: set[str] = set()
    done = asyncio.Event()

    async def handle(message: arrowmq.ReceivedMessage) -> None:
        order = json.loads(message.body)["order"]
        if order == "o-7" and message.reconsume_times == 0:
            raise arrowmq.RetryLater(delay_level=1)  # the bank is not there; again in a second
        billed.add(order)
        if len(billed) == ORDERS:
            done.set()

    async with arrowmq.PushConsumer(namesrv, group="billing", topic="orders", handler=handle, consume_from="first"):
        await done.wait()
    print("billed", len(billed), "orders")


async def follow(namesrv: str) -> None:
    steps: dict[str, list[str]] = {}
    async with arrowmq.Consumer(
        namesrv, group="follow", topic="order-steps", orderly=True, consume_from="first"
    ) as consumer:
        async for message in consumer:
            steps.setdefault(message.keys[0], []).append(message.body.decode())
            await message.ack()
            if len(steps) == ORDERS and all(len(each) == 3 for each in steps.values()):
                break
    assert all(each == ["paid", "packed", "shipped"] for each in steps.values())
    print("followed", len(steps), "orders, each in order")


async def main(namesrv: str) -> None:
    await asyncio.gather(take_orders(namesrv), bill(namesrv), follow(namesrv))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
