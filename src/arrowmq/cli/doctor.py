"""`arrowmq doctor`: looks for what is wrong, and says what to do.

What it looks at and what it thinks of that is in `arrowmq.inspect.doctor`.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from arrowmq.cli.cluster_link import connect_options, json_option, namesrv_options, run
from arrowmq.cli.completion import complete_topic
from arrowmq.cli.examples import examples
from arrowmq.cli.screen import Screen
from arrowmq.inspect.doctor import examine
from arrowmq.inspect.doctor.facts import ERROR, NOTE, WARNING, Facts, Finding
from arrowmq.inspect.texts import counted

_STYLES = {ERROR: "red", WARNING: "yellow", NOTE: "cyan"}


@click.command(
    epilog=examples(
        "arrowmq doctor",
        "arrowmq doctor --topic orders (why is there no route?)",
        "arrowmq doctor --dir ./arrowmq-data",
    )
)
@click.option(
    "--topic", help="Look at this topic and its groups only, and why it has no route.", shell_complete=complete_topic
)
@click.option("--dir", "directory", type=click.Path(), help="Look at this store directory as well.")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="Seconds to watch consumers, to see whose queues do not move.",
)
@click.option("-v", "--verbose", is_flag=True, help="Name the checks that found nothing, too.")
@namesrv_options
@json_option
def doctor(
    topic: str | None,
    directory: str | None,
    watch_s: float,
    verbose: bool,
    namesrv: str,
    timeout_s: float,
    access_key: str | None,
    secret_key: str | None,
    use_tls: bool,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    as_json: bool,
) -> None:
    """Look for what is wrong with a cluster, its topics and groups, and this machine, and say what to do.

    Exit code 0: nothing is wrong (notes may be given); 1: something is; 3: no NameServer answers.
    """
    connect = connect_options(timeout_s, access_key, secret_key, use_tls, tls_ca, tls_cert, tls_key)
    screen = Screen(as_json)
    found: dict[str, list[Finding]] = {}
    is_reached = False

    async def work() -> None:
        nonlocal is_reached
        from arrowmq.client.options import namesrv_addresses
        from arrowmq.inspect.doctor.gather import gather

        facts = await gather(
            sorted(namesrv_addresses(namesrv)), connect, topic=topic, directory=directory, watch_s=watch_s
        )
        found.update(examine(facts))
        is_reached = any(not each.problem for each in facts.namesrvs)
        if not as_json:
            _introduce(screen, facts)

    run(work)
    findings = [finding for some in found.values() for finding in some]
    problems = [finding for finding in findings if finding.severity != NOTE]
    if as_json:
        screen.json({"isHealthy": not problems, "checks": len(found), "findings": [asdict(each) for each in findings]})
    else:
        _show(screen, found, verbose)
    if not is_reached:
        raise SystemExit(3)
    if problems:
        raise SystemExit(1)


def _introduce(screen: Screen, facts: Facts) -> None:
    answering = sum(not each.problem for each in facts.namesrvs)
    members = sum(len(group.members) for group in facts.groups)
    screen.say(
        f"Looked at {answering} of {counted(len(facts.namesrvs), 'NameServer')}, {len(facts.reached)} of "
        f"{counted(len(facts.brokers), 'broker')}, {counted(len(facts.topics), 'topic')}, "
        f"{counted(len(facts.groups), 'group')} with {counted(members, 'member')}, and this machine."
    )


def _show(screen: Screen, found: dict[str, list[Finding]], verbose: bool) -> None:
    count = 0
    for title, findings in found.items():
        if not findings and verbose:
            screen.say(f"ok: {title}", "green")
        for finding in findings:
            count += finding.severity != NOTE
            screen.say("")
            screen.point(f"{finding.severity + ':':8}", finding.what, _STYLES[finding.severity])
            screen.point("  to do:", finding.advice)
    screen.say("")
    if count:
        screen.say(f"{count} findings need you." if count > 1 else "One finding needs you.", "bold")
    else:
        screen.say(f"All {len(found)} checks are fine.", "green")
