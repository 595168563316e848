"""Writes docs/configuration.md: each of Apache's settings, its default, and what ArrowMQ does with it.

    python tools/configuration_table.py            writes the page, and the console's list of defaults
    python tools/configuration_table.py --check    exit code 1 if either is not what the code says

What Apache knows stands in `apache_configuration.tsv`: every setting of Apache RocketMQ 5.5.0 that its classes can be
given, with what it is when nothing is set (empty where that is nothing). What ArrowMQ does comes from its code: a
setting is refused if `arrowmq.refusals` has it, acts if its class declares it and some module reads it, and is only
shown otherwise. Nobody keeps a second list by hand.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from arrowmq.auth.settings import KEYS as AUTH_KEYS
from arrowmq.broker.settings import config as broker_config
from arrowmq.broker.settings.kept import FIXED_KEYS, LIVE_STORE_KEYS
from arrowmq.config import camel_case
from arrowmq.controller.config import ControllerConfig
from arrowmq.namesrv.config import NamesrvConfig
from arrowmq.refusals import (
    BROKER_REQUESTS,
    BROKER_SETTINGS,
    CONTROLLER_SETTINGS,
    GROUP_ATTRIBUTES,
    NAMESRV_SETTINGS,
    TOPIC_ATTRIBUTES,
    Refusal,
    request_reasons,
)
from arrowmq.store import config as store_config
from arrowmq.wire.codes import RequestCode

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "arrowmq"
PAGE = ROOT / "docs" / "configuration.md"
CATALOG = SOURCE / "console" / "settings.tsv"
APACHE = Path(__file__).with_name("apache_configuration.tsv")

# Read by a tool of the operator (brokerStatus, getBrokerConfig), and by nothing that would act on it.
SHOWN_ONLY = {"sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity"}
# Settings that the command takes over before the classes see them.
READ_BY_THE_COMMAND = {"listenPort", "storePathRootDir"}

STORE_KEYS = frozenset(store_config.apache_key(each.name) for each in dataclasses.fields(store_config.StoreConfig))

OWN = "Settings that only ArrowMQ has"
ACTS, SHOWN, REFUSED = "acts", "shown only", "refused"


class Setting(NamedTuple):
    key: str
    default: str  # Apache's
    fate: str
    note: str


def declared(kind: Any, spelling: Callable[[str], str]) -> dict[str, Any]:
    """The fields of a class of settings by Apache's names."""
    return {
        field.metadata.get("key", spelling(field.name)): field
        for field in dataclasses.fields(kind)
        if field.name != "others"
    }


NAMESRV = declared(NamesrvConfig, camel_case)
CONTROLLER = declared(ControllerConfig, camel_case)


def read_names(*parts: str) -> set[str]:
    """Names of settings that some module (of these parts) looks at, on an object that holds settings."""
    names: set[str] = set()
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyx")]:
        if parts and path.relative_to(SOURCE).parts[0] not in parts:
            continue
        text = path.read_text()
        names.update(re.findall(r"\b\w*(?:config|settings)\.([a-z_0-9]+)", text))
        if path.name == "config.py":
            names.update(re.findall(r"\bself\.([a-z_0-9]+)", text))
        # A setting handed on under its name: getattr, and fields that are copied by name.
        names.update(re.findall(r"getattr\(\w*config, \"([a-z_0-9]+)\"", text))
    return names


def default_of(field: Any) -> str:
    if field.default is dataclasses.MISSING:
        return ""
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def judge(key: str, apache_default: str, fields: dict[str, Any], is_read: set[str]) -> Setting:
    table = {id(NAMESRV): NAMESRV_SETTINGS, id(CONTROLLER): CONTROLLER_SETTINGS}.get(id(fields), BROKER_SETTINGS)
    refused = said(table, key)
    field = fields.get(key)
    acts = key in READ_BY_THE_COMMAND | AUTH_KEYS or (
        field is not None and key not in SHOWN_ONLY and field.name in is_read
    )
    if refused:
        return Setting(key, apache_default, ACTS if acts else REFUSED, f"refused: {refused}" if acts else refused)
    if not acts:
        return Setting(key, apache_default, SHOWN, "" if field is None else "with its default, too")
    ours = default_of(field) if field is not None and key not in READ_BY_THE_COMMAND else ""
    differs = ours != "" and not apache_default.startswith("(") and ours != apache_default
    return Setting(key, apache_default, ACTS, f"default here: {ours}" if differs else "")


def said(table: Iterable[Refusal], key: str) -> str:
    """Which values of a key are refused, and why; empty if none is."""
    return "; ".join(f"{refusal.values.words}: {refusal.reason}" for refusal in table if refusal.key == key)


def settings() -> dict[str, list[Setting]]:
    """All settings under the headings of the page."""
    is_read = read_names()
    read_by_controllers = read_names("controller", "metrics", "server.py")
    broker = declared(broker_config.BrokerConfig, broker_config.apache_key)
    store = declared(store_config.StoreConfig, store_config.apache_key)
    both = {**broker, **store}
    headings = {
        "broker": ("Broker", both),
        "store": ("Store", both),
        "netty-server": ("Server sockets of a broker", both),
        "netty-client": ("Connections that a broker makes", both),
        "auth": ("Users and permissions", both),
        "namesrv": ("NameServer", NAMESRV),
        "controller": ("Controller", CONTROLLER),
    }
    found: dict[str, list[Setting]] = {heading: [] for heading, _ in headings.values()}
    seen: dict[str, set[str]] = {"namesrv": set(), "controller": set(), "broker": set()}
    for line in APACHE.read_text().splitlines():
        group, key, default = line.split("\t")
        heading, fields = headings[group]
        mine = seen[group if group in ("namesrv", "controller") else "broker"]
        if key not in mine:  # some classes of Apache share a name: the broker has one setting of it
            mine.add(key)
            found[heading].append(
                judge(key, default, fields, read_by_controllers if group == "controller" else is_read)
            )
    own = [
        Setting(key, "", ACTS, f"default: {default_of(field)}")
        for kind, fields in (("broker", both), ("controller", CONTROLLER))
        for key, field in sorted(fields.items())
        if key not in seen[kind] and field.name in is_read
    ]
    found[OWN] = own
    return found


HEAD = """# Settings

ArrowMQ reads Apache RocketMQ's `broker.conf` and `namesrv.conf` as they are (`-c FILE`), and the same keys one by one
(`--set KEY=VALUE`). This page lists every setting of Apache RocketMQ 5.5.0 with Apache's default, and what ArrowMQ does
with it:

- **acts**: it does what it does in Apache's broker; where the remark says so, some of its values are refused.
- **shown only**: it has no effect. Where it is set, it is kept and shown by `mqadmin getBrokerConfig`, and the log
  names it. Most of these tune thread pools, queues between threads and lock kinds, which a broker of one event loop
  does not have, or details of a capability that is refused as a whole.
- **refused**: it promises something that ArrowMQ does not do. With the values that the remark names, a broker or a
  NameServer does not start, and `mqadmin updateBrokerConfig` and `updateNamesrvConfig` change nothing. Apache's default
  is never refused.

What is set at run time is kept in `config/broker.properties` and in force again at the next start. Settings of the
store that cannot change under a running one count from then on, and the log says so; `flushDiskType`,
`storePathCommitLog`, and what names the broker (`brokerName`, `brokerRole`, `listenPort`, …) are changed where it is
started.

TLS has settings of its own, which are JVM properties in Apache's world and ordinary keys here: `tls.server.mode`,
`tls.server.certPath`, `tls.server.keyPath`, `tls.server.keyPassword`, `tls.server.trustCertPath`,
`tls.server.need.client.auth`, `tls.enable`, and `tls.client.…` likewise. `tls.ha.mode` is ArrowMQ's own
([security](security.md#tls)).

This page is written by `python tools/configuration_table.py` from the code; a test compares the two.
"""


def page() -> str:
    parts = [HEAD]
    for heading, rows in settings().items():
        if not rows:
            continue
        counts = [f"{sum(row.fate == fate for row in rows)} {fate}" for fate in (ACTS, SHOWN, REFUSED)]
        parts.append(f"\n## {heading}\n\n{', '.join(counts)}.\n\n| key | default in Apache | ArrowMQ | remark |")
        parts.append("\n|---|---|---|---|\n")
        parts.extend(f"| `{row.key}` | {_cell(row.default)} | {row.fate} | {row.note} |\n" for row in rows)
    parts.append(refused_elsewhere())
    return "".join(parts)


def counts_from(setting: Setting) -> str:
    """When a change of a running broker counts: `now`, from its next `start` on, `never`; or it is `fixed`."""
    if setting.key in FIXED_KEYS:
        return "fixed"
    if setting.fate != ACTS:
        return "never"
    return "start" if setting.key in STORE_KEYS - LIVE_STORE_KEYS else "now"


def catalog() -> str:
    """What the console's page of settings knows: each setting of a broker, its default, when a change counts here."""
    shown = declared(broker_config.BrokerConfig, broker_config.apache_key)
    rows = {key: f"{default_of(field)}\tnever" for key, field in shown.items()}  # unless the page below says more
    for heading, found in settings().items():
        if heading not in ("NameServer", "Controller"):
            for row in found:
                default = row.default or row.note.removeprefix("default: ").strip("`") * (heading == OWN)
                rows[row.key] = f"{default}\t{counts_from(row)}"
    return "".join(f"{key}\t{default}\n" for key, default in sorted(rows.items()))


def refused_elsewhere() -> str:
    """What is refused besides settings."""
    parts = [
        "\n## Topics and groups that are refused\n\n"
        "They are not made. What Apache's broker left of them in a store is kept, and the log says at the start that\n"
        "it has no effect.\n\n| what | value | why |\n|---|---|---|\n"
    ]
    tables = (
        ("topic attribute", TOPIC_ATTRIBUTES),
        ("group attribute", GROUP_ATTRIBUTES),
    )
    parts.extend(
        f"| {what} `{refusal.key}` | {refusal.values.words} | {refusal.reason} |\n"
        for what, table in tables
        for refusal in table
    )
    parts.append(
        "\n## Requests that a broker refuses\n\n"
        "With code 3 (REQUEST_CODE_NOT_SUPPORTED), the name of the request, and the reason.\n\n"
        "| requests | why |\n|---|---|\n"
    )
    reasons = request_reasons(BROKER_REQUESTS)
    for why in dict.fromkeys(reasons.values()):
        names = ", ".join(f"`{code.name}`" for code in RequestCode if reasons.get(code) == why)
        parts.append(f"| {names} | {why} |\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text and not text.startswith("(") else text


def main() -> int:
    for path, wanted in ((PAGE, page()), (CATALOG, catalog())):
        if "--check" not in sys.argv[1:]:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            print(f"{path.relative_to(ROOT)} is not what the code says: run python {Path(__file__).relative_to(ROOT)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
