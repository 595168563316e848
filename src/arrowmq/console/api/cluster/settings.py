"""Settings of brokers: value, default, meaning, and changing them while the broker runs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from arrowmq.console.api.declare import Call, Done, ListQuery, Name, Struct, endpoint, paged
from arrowmq.console.errors import bad_request, not_found
from arrowmq.console.settings_catalog import catalog

KEPT_S = 3.0


class SettingsQuery(ListQuery, kw_only=True):
    broker: Annotated[str, msgspec.Meta(max_length=300)] = ""
    changed: bool = False


class SettingRow(Struct, kw_only=True):
    key: str
    value: str
    default: str | None
    is_changed: bool
    meaning: str | None
    #: When a change counts: `now`, `start`, `never`, or `fixed`; None on Apache's brokers, which do not say
    counts: str | None


class SettingPage(Struct, kw_only=True):
    broker: str
    address: str
    total: int
    rows: list[SettingRow]


async def address_of(call: Call, broker: str) -> tuple[str, str]:
    """(name, address) of a broker named by either; without a name the first one."""
    snapshot = await call.console.gatherer.fresh()
    for row in snapshot.brokers:
        if row.address == broker or (row.broker == broker and row.broker_id == 0) or not broker:
            return row.broker, row.address
    raise not_found(f"there is no broker {broker}" if broker else "no broker is registered at the NameServer")


async def config_of(call: Call, address: str) -> dict[str, str]:
    return await call.kept(("config", address), KEPT_S, lambda admin: admin.broker_config(address))


@endpoint("GET", "/api/settings", tag="settings")
async def settings(call: Call, query: SettingsQuery) -> SettingPage:
    """The settings of one broker, each with Apache's default and what it is for."""
    broker, address = await address_of(call, query.broker)
    config = await config_of(call, address)
    known = catalog()
    is_ours = any(row.address == address and row.product == "ArrowMQ" for row in call.console.gatherer.now.brokers)
    text = query.q.lower()
    rows = []
    for key, value in config.items():
        about = known.get(key)
        default = about.default if about is not None else None
        # "(by processors)" and the like: what it is depends on the machine.
        is_changed = default is not None and not default.startswith("(") and default != value
        meaning = about.meaning if about is not None else None
        if (text in f"{key} {value} {meaning or ''}".lower()) and (is_changed or not query.changed):
            counts = about.counts if about is not None and is_ours else None
            rows.append(
                SettingRow(key=key, value=value, default=default, is_changed=is_changed, meaning=meaning, counts=counts)
            )
    sorts = {"key": lambda row: row.key.lower(), "value": lambda row: (row.value, row.key)}
    total, shown = paged(rows, query, sorts, "key")
    return SettingPage(broker=broker, address=address, total=total, rows=shown)


class SettingChange(Struct, kw_only=True, forbid_unknown_fields=True):
    broker: Name
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[\w.-]+$")]
    value: Annotated[str, msgspec.Meta(max_length=4000)]


@endpoint("PUT", "/api/settings", tag="settings")
async def change_setting(call: Call, body: SettingChange) -> Done:
    """Change one setting of a broker that runs; what a broker does not take over, it says."""
    if "\n" in body.value or "\r" in body.value:
        raise bad_request("a value is one line")
    _, address = await address_of(call, body.broker)
    admin = await call.admin()
    before = await admin.broker_config(address)
    if body.key not in before:
        raise not_found(f"{body.broker} has no setting {body.key}")
    await admin.update_broker_config(address, {body.key: body.value})
    call.console.cache.forget()
    after = (await admin.broker_config(address)).get(body.key, "")
    if after != body.value:
        return Done(done=f"{body.key} is {after}: the broker takes {body.value} over at its next start, or not at all")
    return Done(done=f"{body.key} was {before[body.key]} and is {after}")
