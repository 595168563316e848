"""Goal: a broker's services are found by name, and their fields are the order in which things happen to them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from arrowmq.broker.services import Services

NAMES = [field.name for field in fields(Services)]


class Noted:
    """A service that has all four steps, and notes when each is called."""

    def __init__(self, name: str, seen: list[tuple[str, str]]) -> None:
        self.name = name
        self.seen = seen

    def load(self) -> None:
        self.seen.append(("load", self.name))

    def start(self) -> None:
        self.seen.append(("start", self.name))

    async def stop(self) -> None:
        self.seen.append(("stop", self.name))

    def persist(self) -> None:
        self.seen.append(("persist", self.name))


async def test_services_load_start_and_persist_in_the_order_of_their_fields_and_stop_in_the_reverse() -> None:
    seen: list[tuple[str, str]] = []
    parts: dict[str, Any] = {name: Noted(name, seen) for name in NAMES}
    services = Services(**parts)
    services.load()
    services.start()
    await services.stop()
    services.persist()
    assert seen == [
        *(("load", name) for name in NAMES),
        *(("start", name) for name in NAMES),
        *(("stop", name) for name in reversed(NAMES)),
        *(("persist", name) for name in NAMES),
    ]


async def test_the_rules_of_a_send_run_in_the_order_of_the_services_that_have_them(node: Any) -> None:
    services, path = node.broker.services, node.broker.path
    of_rules = [next(name for name in NAMES if getattr(services, name) is rule.__self__) for rule in path.rules]
    assert of_rules == sorted(of_rules, key=NAMES.index)
    assert {"retry", "transactions"} <= set(of_rules)


async def test_every_request_code_of_the_broker_is_answered_by_a_named_service(node: Any) -> None:
    services = set(map(id, node.broker.services))
    for code in node.broker.handlers:
        assert id(node.broker.handlers._handlers[code].method.__self__) in services
