"""`arrowmq broker config`: show and change the settings of a broker that runs."""

from __future__ import annotations

import click

from arrowmq.cli.cluster_link import Failure, Link, connected
from arrowmq.cli.completion import complete_broker
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Column

_BROKER = click.argument("broker", shell_complete=complete_broker)


@click.group("config")
def config_group() -> None:
    """Show and change the settings of a broker that runs."""


@config_group.command("show", epilog=examples("arrowmq broker config show broker-a flushDiskType brokerPermission"))
@_BROKER
@click.argument("keys", nargs=-1)
@connected
async def show(link: Link, broker: str, keys: tuple[str, ...]) -> None:
    """Show all settings of BROKER (a name or an address), or those whose names are given."""
    (address,) = (await link.admin.targets(None, broker)).values()
    config = await link.admin.broker_config(address)
    unknown = [key for key in keys if key not in config]
    if unknown:
        raise Failure(f"{broker} has no setting {', '.join(unknown)}")
    chosen = {key: config[key] for key in keys} if keys else dict(sorted(config.items()))
    if link.screen.as_json:
        link.screen.json(chosen)
        return
    rows = [{"key": key, "value": value or "(empty)"} for key, value in chosen.items()]
    link.screen.table([Column("key", "SETTING"), Column("value", "VALUE")], rows)


@config_group.command("set", epilog=examples("arrowmq broker config set broker-a autoCreateTopicEnable=false"))
@_BROKER
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE…")
@connected
async def set_(link: Link, broker: str, settings: tuple[str, ...]) -> None:
    """Change settings of BROKER while it runs. All are taken over, or none if one is wrong."""
    changes = {}
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        changes[key.strip()] = value.strip()
    (address,) = (await link.admin.targets(None, broker)).values()
    before = await link.admin.broker_config(address)
    unknown = [key for key in changes if key not in before]
    if unknown:
        raise Failure(f"{broker} has no setting {', '.join(unknown)}; `arrowmq broker config show {broker}` lists them")
    await link.admin.update_broker_config(address, changes)
    after = await link.admin.broker_config(address)
    rows = [{"key": key, "before": before[key], "after": after.get(key)} for key in changes]
    if link.screen.as_json:
        link.screen.json(rows)
        return
    link.screen.table([Column("key", "SETTING"), Column("before", "BEFORE"), Column("after", "NOW")], rows)
