"""Messages that wait cost disk only: the bounded form of `python -m benchmarks.pending`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_waiting_messages_cost_no_memory() -> None:
    """Thirty thousand delays and five thousand of each other kind: three megabytes would be 75 bytes for each."""
    command = [sys.executable, "-m", "benchmarks.pending", "30000", "5000", "5000", "--rest", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    found = re.search(r"all together\s+memory\s+([+-][\d.]+) MB", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) < 3.0, done.stdout
