"""The comparison as text, with exit code 1 if something differs for no listed reason; `--page` writes docs/mqadmin.md.

python -m tests.interop.mqadmin [--page]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mqadmin.comparison import compare, report, run
from mqadmin.page import PAGE, page


def main() -> int:
    if "--page" in sys.argv[1:]:
        PAGE.write_text(page())
        return 0
    with tempfile.TemporaryDirectory(prefix="arrowmq-mqadmin-") as folder:
        comparison = compare(run("apache", Path(folder) / "apache"), run("arrowmq", Path(folder) / "arrowmq"))
    print(report(comparison))
    return 1 if comparison.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
