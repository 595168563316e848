"""Schemathesis over the console's API: whatever it is sent, it answers with a sentence and never with a 500.

.venv/bin/python tests/console/schema_check.py [examples]       (`make console-test` does)
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from consoles import console_running  # noqa: E402
from scene import furnish  # noqa: E402

from arrowmq.testing import BrokerThread  # noqa: E402

TOKEN = "schema-check"


def main() -> int:
    examples = sys.argv[1] if len(sys.argv) > 1 else "50"
    with BrokerThread() as broker, tempfile.TemporaryDirectory() as folder:
        asyncio.run(furnish(broker.namesrv))
        with console_running(broker.namesrv, Path(folder), "--token", TOKEN) as address:
            command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{address}/api/openapi.json"]
            return subprocess.run(
                [
                    *command,
                    *("--header", f"Authorization: Bearer {TOKEN}"),
                    *("--checks", "not_a_server_error,content_type_conformance,response_schema_conformance"),
                    *(
                        "--max-examples",
                        examples,
                        "--exclude-path",
                        "/api/events",
                        "--phases",
                        "examples,coverage,fuzzing",
                    ),
                    *("--request-timeout", "30", "--suppress-health-check", "all"),
                ],
                check=False,
            ).returncode


if __name__ == "__main__":
    sys.exit(main())
