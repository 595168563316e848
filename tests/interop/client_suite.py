"""`python tests/interop/client_suite.py [servers] [servers4] [proxy] [-- PYTEST ARGUMENTS]`: tests/client elsewhere.

The same tests that `make test` runs against ArrowMQ, unchanged, against Apache RocketMQ 5.5.0 ("servers") and 4.9.7
("servers4"), and against ArrowMQ by the remoting port of a proxy ("proxy"), where administrators go to the NameServer
all the same. What 4.9 does not have, the tests say themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from oracle import apache
from oracle.java import Value
from oracle.ports import broker_port, free_port
from oracle.target import Target

ROOT = Path(__file__).resolve().parents[2]
#: The tests wait for checks of transactions, for timers and for filters.
CONFIG: dict[str, Value] = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "enablePropertyFilter": True}
CONFIG_5: dict[str, Value] = {"timerWheelEnable": True, "recallMessageEnable": True}


def run_by_proxy(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="client-suite-") as folder:
        config = {**CONFIG, **CONFIG_5}
        with Target("proxy", Path(folder), **config) as target:
            print("tests/client against ArrowMQ by a proxy", flush=True)
            places = {"ARROWMQ_TEST_NAMESRV": target.namesrv, "ARROWMQ_TEST_ADMIN": target.real_namesrv}
            return run_tests(arguments, places)


def run_tests(arguments: list[str], places: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", *(arguments or ["tests/client", "-n", "2"])]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **places}).returncode


def run(profile: str, arguments: list[str]) -> int:
    if profile == "proxy":
        return run_by_proxy(arguments)
    config = CONFIG if profile == "servers4" else {**CONFIG, **CONFIG_5}
    with (
        tempfile.TemporaryDirectory(prefix="client-suite-") as folder,
        apache.cluster(Path(folder), free_port(), broker_port(), profile=profile, **config) as (names, _broker),
    ):
        print(f"tests/client against Apache {'4.9.7' if profile == 'servers4' else '5.5.0'}", flush=True)
        return run_tests(arguments, {"ARROWMQ_TEST_NAMESRV": names.address})


def main() -> int:
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    profiles, arguments = given[:split], given[split + 1 :]
    return max(run(profile, arguments) for profile in profiles or ("servers", "servers4"))


if __name__ == "__main__":
    sys.exit(main())
