"""Makes the scene in `metered` known to the tests."""

from __future__ import annotations

import sys
from pathlib import Path

# Last, so that it hides nothing that another test folder means.
sys.path.append(str(Path(__file__).resolve().parent))
