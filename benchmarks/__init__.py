"""What performance claims rest on: ArrowMQ beside the Apache broker, in one run, on one machine, with the same clients.

In: rows (one piece of work each), systems (a broker to be measured), loads (Apache's own benchmark programs and a raw
load generator). Out: a table of medians and ratios, as JSON and as Markdown.
"""

import signal
import sys
from pathlib import Path

# The handles of the servers are those of the interop suite.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "interop"))

# A benchmark that is ended ends the servers that it has started.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
