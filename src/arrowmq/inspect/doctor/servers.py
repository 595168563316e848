"""Checks of NameServers, brokers and the machine."""

from __future__ import annotations

import ipaddress

from arrowmq.inspect.broker_clock import SKEW_MS
from arrowmq.inspect.doctor.facts import ERROR, NOTE, WARNING, Facts, Finding
from arrowmq.inspect.texts import bytes_text, duration_text
from arrowmq.remoting.address import is_loopback

UNFLUSHED_BYTES = 256 << 20
DISPATCH_BEHIND_BYTES = 64 << 20
LEAST_MEMORY_BYTES = 512 << 20
LEAST_OPEN_FILES = 65_536
USUAL_MAX_MAP_COUNT = 65_530
SEGMENT_BYTES = 1 << 30

_NAMESRV_ADVICE = {
    "name": ("its name cannot be resolved", "check the spelling of the address, or give an IP address"),
    "refused": (
        "nothing listens there",
        "start a server (`arrowmq server`, or `arrowmq namesrv`), or give the right address with -n HOST:PORT",
    ),
    "timeout": (
        "no connection comes about",
        "check that the machine is up and that no firewall drops the port",
    ),
    "silent": (
        "something listens there, but it does not speak RocketMQ's protocol",
        "check the port (a NameServer's is 9876 by default); if the server insists on TLS, add --tls",
    ),
    "broker": (
        "a broker answers there, not a NameServer",
        "give the NameServer's address (port 9876 by default), not the broker's (10911)",
    ),
}


def namesrvs_answer(facts: Facts) -> list[Finding]:
    found = []
    for namesrv in facts.namesrvs:
        if namesrv.problem:
            what, advice = _NAMESRV_ADVICE[namesrv.problem]
            detail = f" ({namesrv.detail})" if namesrv.detail else ""
            text = f"NameServer {namesrv.address} does not answer: {what}{detail}."
            found.append(Finding(ERROR, f"namesrv-{namesrv.problem}", text, advice))
    return found


def namesrvs_agree(facts: Facts) -> list[Finding]:
    """NameServers do not talk to each other: a broker that was told of one of them only is invisible at the others."""
    answering = [namesrv for namesrv in facts.namesrvs if not namesrv.problem]
    everything = {name for namesrv in answering for name in namesrv.brokers}
    found = []
    for namesrv in answering:
        missing = sorted(everything - set(namesrv.brokers))
        if missing:
            found.append(
                Finding(
                    ERROR,
                    "namesrvs-differ",
                    f"NameServer {namesrv.address} does not know broker {', '.join(missing)}, which another one knows: "
                    "clients see its topics or not, depending on whom they ask.",
                    f"start {', '.join(missing)} with all NameServers in namesrvAddr (separated by `;`)",
                )
            )
    return found


def brokers_are_registered(facts: Facts) -> list[Finding]:
    found = []
    for namesrv in facts.namesrvs:
        if not namesrv.problem and not namesrv.brokers and not facts.brokers:
            found.append(
                Finding(
                    ERROR,
                    "no-broker",
                    f"No broker is registered at NameServer {namesrv.address}.",
                    f"start one with `arrowmq broker -n {namesrv.address}`; if one runs, its namesrvAddr names another "
                    "NameServer, or its log says why it cannot register",
                )
            )
    names = {broker.name for broker in facts.brokers}
    for name in sorted(names - {broker.name for broker in facts.masters}):
        found.append(
            Finding(
                ERROR,
                "no-master",
                f"Broker {name} has slaves but no master: its topics can be read and not written.",
                f"start the master of {name} (brokerId=0) again",
            )
        )
    return found


def brokers_answer(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.brokers:
        if not broker.problem:
            continue
        advice = "check that it runs; if it was killed, its NameServer forgets it after two minutes"
        if not _all_local(facts) and _is_loopback(broker.address):
            advice = "it advertises a loopback address: set brokerIP1 to the address that clients reach it by"
        else:
            advice += (
                "; if it runs, clients cannot reach the address that it advertises: set brokerIP1 to one that they can"
            )
        text = f"Broker {broker.name} is registered at {broker.address}, but does not answer there: {broker.problem}."
        found.append(Finding(ERROR, "broker-unreachable", text, advice))
    return found


def addresses_fit(facts: Facts) -> list[Finding]:
    """A broker that tells everybody 127.0.0.1 works on its own machine and nowhere else."""
    if _all_local(facts):
        return []
    return [
        Finding(
            ERROR,
            "loopback-advertised",
            f"Broker {broker.name} advertises {broker.address}: clients on other machines connect to themselves.",
            "set brokerIP1 of that broker to the address that clients reach it by, and restart it",
        )
        for broker in facts.brokers
        if _is_loopback(broker.address)
    ]


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _all_local(facts: Facts) -> bool:
    return all(_is_loopback(namesrv.address) for namesrv in facts.namesrvs)


def brokers_may_be_used(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        text = broker.config.get("brokerPermission", "6")
        permission = int(text) if text.isdigit() else 6
        wanted = {2: ("write", "no producer can send to it"), 4: ("read", "no consumer gets anything from it")}
        for bit, (name, effect) in wanted.items():
            if not permission & bit:
                found.append(
                    Finding(
                        ERROR,
                        f"broker-no-{name}",
                        f"Broker {broker.name} has brokerPermission={permission}, without {name}: {effect}.",
                        f"`arrowmq broker config set {broker.name} brokerPermission=6`, unless it is being retired",
                    )
                )
    return found


def brokers_are_guarded(facts: Facts) -> list[Finding]:
    """Everybody who reaches such a broker may read, write and administer."""
    return [
        Finding(
            NOTE,
            "broker-open",
            f"Broker {broker.name} serves everybody who reaches {broker.address}: it does not ask who they are.",
            "set authenticationEnabled and authorizationEnabled (docs/security.md), or serve its machine only with "
            "--bind 127.0.0.1",
        )
        for broker in facts.reached
        if broker.config.get("authenticationEnabled", "false") != "true"
        and "bindAddress" in broker.config
        and not is_loopback(broker.config["bindAddress"])
    ]


def disks_have_room(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        ratio = broker.number("commitLogDiskRatio")
        if ratio is None:
            continue
        refuses = broker.ratio("diskSpaceWarningLevelRatio", 90, 35, 90)
        deletes = broker.ratio("diskSpaceCleanForciblyRatio", 85, 30, 85)
        expires = broker.ratio("diskMaxUsedSpaceRatio", 75, 10, 95)
        advice = "free space, add disk, or keep messages for less long (fileReservedTime, in hours)"
        used = f"The disk of broker {broker.name} is {ratio:.0%} full"
        if ratio > refuses:
            found.append(Finding(ERROR, "disk-full", f"{used}: it refuses messages above {refuses:.0%}.", advice))
        elif ratio > deletes:
            text = f"{used}: above {deletes:.0%} it deletes the oldest messages even before their time."
            found.append(Finding(ERROR, "disk-nearly-full", text, advice))
        elif ratio > expires:
            text = f"{used}: above {expires:.0%} it deletes expired messages at any hour."
            found.append(Finding(WARNING, "disk-filling", text, advice))
    return found


def disks_keep_up(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        words = broker.runtime.get("remainHowManyDataToFlush", "").split()
        unflushed = int(words[0]) if len(words) == 2 and words[1] == "B" and words[0].isdigit() else 0
        if unflushed > UNFLUSHED_BYTES:
            found.append(
                Finding(
                    WARNING,
                    "flush-behind",
                    f"Broker {broker.name} has {bytes_text(unflushed)} not on disk yet: a power loss loses that.",
                    "the disk is slower than the senders: look at its load, or use a faster one",
                )
            )
        behind = broker.number("dispatchBehindBytes") or 0
        if behind > DISPATCH_BEHIND_BYTES:
            found.append(
                Finding(
                    WARNING,
                    "dispatch-behind",
                    f"Broker {broker.name} has {bytes_text(behind)} stored that consumers cannot see yet.",
                    "wait if it has just started; else look at the load of its disk and CPU",
                )
            )
        failed = int(broker.number("putMessageFailedTimes") or 0)
        if failed:
            text = f"Broker {broker.name} has failed to store {failed} messages since it started."
            found.append(Finding(NOTE, "puts-failed", text, "its log says why each time"))
    return found


def clocks_agree(facts: Facts) -> list[Finding]:
    found = []
    for broker in facts.reached:
        skew = broker.clock_skew_ms
        if skew is not None and abs(skew) > SKEW_MS:
            way = "ahead of" if skew > 0 else "behind"
            found.append(
                Finding(
                    WARNING,
                    "clock-skew",
                    f"The clock of broker {broker.name} is {duration_text(abs(skew))} {way} this machine's: delays, "
                    "resets by time, and searches by time will be off by that much.",
                    "let both machines follow a time server (chrony, ntpd, systemd-timesyncd)",
                )
            )
    return found


def versions_fit(facts: Facts) -> list[Finding]:
    versions = {broker.runtime.get("brokerVersionDesc", "?") for broker in facts.reached}
    found = []
    if len(versions) > 1:
        found.append(
            Finding(
                NOTE,
                "versions-differ",
                f"Brokers of different versions run together: {', '.join(sorted(versions))}.",
                "fine during an upgrade; bring all to the newest one in the end",
            )
        )
    for broker in facts.reached:
        version = broker.runtime.get("brokerVersionDesc", "")
        if version.startswith(("V3_", "V4_0", "V4_1", "V4_2", "V4_3", "V4_4")):
            text = f"Broker {broker.name} is of version {version}: newer clients miss parts of the protocol in it."
            found.append(Finding(WARNING, "version-old", text, "upgrade it to 4.9 or newer"))
    return found


def machine_is_fit(facts: Facts) -> list[Finding]:
    machine = facts.machine
    found = []
    limit = machine.memory_limit_bytes
    if limit is not None and limit < LEAST_MEMORY_BYTES:
        found.append(
            Finding(
                WARNING,
                "memory-limit",
                f"This machine or container allows {bytes_text(limit)} of memory: a broker reads much from disk.",
                f"allow at least {bytes_text(LEAST_MEMORY_BYTES)}; mapped files count as cache and are given back",
            )
        )
    if machine.open_files_hard < LEAST_OPEN_FILES:
        found.append(
            Finding(
                NOTE,
                "open-files",
                f"A process here may open {machine.open_files_hard} files; each connection and each queue file is one.",
                "raise the limit: `ulimit -Hn 655350`, or LimitNOFILE=655350 in the systemd unit",
            )
        )
    if machine.max_map_count is not None and machine.max_map_count < USUAL_MAX_MAP_COUNT:
        found.append(
            Finding(
                WARNING,
                "map-count",
                f"vm.max_map_count is {machine.max_map_count}: a broker with many queues maps more files than that.",
                "`sysctl -w vm.max_map_count=655360`",
            )
        )
    if not machine.is_native:
        found.append(
            Finding(
                NOTE,
                "no-native",
                "ArrowMQ runs here without its native modules: it is right, but several times slower.",
                "install a C compiler and run `make native`, or install a wheel; unset ARROWMQ_PURE_PYTHON",
            )
        )
    return found + _directory_is_fit(facts)


def _directory_is_fit(facts: Facts) -> list[Finding]:
    machine = facts.machine
    if machine.directory_problem:
        text = f"The directory {machine.directory} cannot be used as a store: {machine.directory_problem}."
        return [Finding(ERROR, "directory", text, "give the directory of the broker's store, and run as its user")]
    free = machine.directory_free_bytes
    if free is not None and free < 2 * SEGMENT_BYTES:
        text = f"{machine.directory} has {bytes_text(free)} free, and a broker allocates its log 1 GiB at a time."
        return [Finding(WARNING, "directory-small", text, "free space, or set mappedFileSizeCommitLog lower")]
    return []


SERVER_CHECKS = {
    "NameServers answer": namesrvs_answer,
    "NameServers agree": namesrvs_agree,
    "brokers are registered": brokers_are_registered,
    "brokers answer": brokers_answer,
    "addresses fit": addresses_fit,
    "brokers may be used": brokers_may_be_used,
    "brokers are guarded": brokers_are_guarded,
    "disks have room": disks_have_room,
    "disks keep up": disks_keep_up,
    "clocks agree": clocks_agree,
    "versions fit": versions_fit,
    "this machine is fit": machine_is_fit,
}
