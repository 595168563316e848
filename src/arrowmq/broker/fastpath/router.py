"""Which request codes the fast path serves, and by which native handlers.

An entry is a native handler with the codes it is asked for, the header it reads, and the permits it works under.
Handlers of one code are asked in the order of the entries, until one takes the request. **A new kind of request** is a
`NativeHandler` in a `_name_native.pyx`, a `Kind` in `permit.py`, its header in
`wire/in_place/fields.py`, a function that builds its entry, and one more line in `build_fast_paths`.

From the permits come the tables that the router and its handlers work with; they are made anew whenever one changes.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from arrowmq import native
from arrowmq.broker.fastpath.entry import Entry
from arrowmq.broker.fastpath.permit import Permit
from arrowmq.broker.fastpath.pop.pops import build_pops
from arrowmq.broker.fastpath.pulls import build_pulls
from arrowmq.broker.fastpath.sends import build_sends
from arrowmq.broker.fastpath.transactions import build_transactions
from arrowmq.clock import SystemClock

if TYPE_CHECKING:
    from arrowmq.broker.broker import Broker
    from arrowmq.broker.fastpath import _router_plain as _router
else:
    _router = native.load("arrowmq.broker.fastpath._router")

Router = _router.Router

IPV4_BYTES = 4
NATIVE_HANDLERS = (
    "fastpath._send_native",
    "fastpath._transaction_native",
    "fastpath._pull_native",
    "fastpath.pop._pop_native",
    "fastpath.pop._ack_native",
    "pop.check_points._table_native",
)


class FastPaths(NamedTuple):
    """Of the main port and of the VIP port, which knows no pulls. Their handlers are the same."""

    main: Router | None
    vip: Router | None


def build_fast_paths(broker: Broker) -> FastPaths:
    """The fast paths of a broker that has started; none where it can have none."""
    if not is_possible(broker):
        return FastPaths(None, None)
    entries = [build_sends(broker), *build_transactions(broker), build_pulls(broker), *build_pops(broker)]
    return FastPaths(_router_of(broker, entries), _router_of(broker, [entry for entry in entries if entry.at_vip_port]))


def is_possible(broker: Broker) -> bool:
    """The fast path writes through the native tails only, and knows hosts of IPv4 only."""
    return (
        native.is_native(_router)
        and all(find_spec(f"arrowmq.broker.{name}") is not None for name in NATIVE_HANDLERS)
        and type(broker.store.commit_log.tail).__module__.endswith("_native")
        and len(broker.address.store_host[0]) == IPV4_BYTES
    )


def _router_of(broker: Broker, entries: list[Entry]) -> Router:
    router = Router(None if isinstance(broker.clock, SystemClock) else broker.clock.now_ms)
    for entry in entries:
        router.add(entry.name, entry.handler, entry.codes)

    def renew() -> None:
        for entry in entries:
            if entry.renew is not None:
                entry.renew()
        router.use_checks(list(broker.permit.native_checks.values()))
        for code, numbers in fields_by_code(entries, broker.permit).items():
            router.use_fields(code, numbers)

    broker.permit.on_change.append(renew)
    renew()
    return router


def fields_by_code(entries: list[Entry], permit: Permit) -> dict[int, dict[str, int]]:
    """Which header fields a request of each code may have: those of its header that no step touches, and those that
    native checks read."""
    touched: dict[int, set[str]] = {}
    for entry in entries:
        for code in entry.codes:
            for each in entry.permits:
                touched.setdefault(code, set()).update(each.ordinary.fields)
    headers = {code: entry.fields for entry in entries for code in entry.codes}
    return {code: {**header.numbers(touched[code]), **permit.extra_fields} for code, header in headers.items()}
