"""Makes the modules beside the tests importable: what several tests of the store share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
