"""Schemathesis over the console's API: whatever it is sent, it answers with a sentence and never with a 500.

.venv/bin/python tests/console/schema_check.py [examples]       (`make console-test` does)
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS / each) for each in ("console", "", "interop")]

from consoles import console_running  # noqa: E402
from scene import furnish  # noqa: E402

from arrowmq.testing import BrokerThread  # noqa: E402

TOKEN = "schema-check"


# With names that exist, requests get past the first "does not exist".
KNOWN = """
[parameters]
"path.topic" = "orders"
"path.group" = "shipping"
"path.id" = "{order_id}"
"path.username" = "nobody"
"query.topic" = "orders"
"query.id" = "{order_id}"
"""


def main() -> int:
    examples = sys.argv[1] if len(sys.argv) > 1 else "50"
    with BrokerThread() as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = asyncio.run(furnish(broker.namesrv))
        with console_running(broker.namesrv, folder, "--token", TOKEN) as address:
            (folder / "any.toml").write_text("")
            (folder / "known.toml").write_text(KNOWN.format(order_id=found.order_id))
            return max(check(address, folder / each, examples) for each in ("any.toml", "known.toml"))


def check(address: str, config: Path, examples: str) -> int:
    program = str(Path(sys.executable).with_name("schemathesis"))
    command = [program, "--config-file", str(config), "run", f"{address}/api/openapi.json"]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--exclude-path", "/api/events"]
    command += ["--checks", "not_a_server_error,content_type_conformance,response_schema_conformance"]
    command += ["--max-examples", examples, "--phases", "examples,coverage,fuzzing"]
    command += ["--request-timeout", "30", "--suppress-health-check", "all"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
