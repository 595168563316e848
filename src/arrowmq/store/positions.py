"""Three positions in the commit log, three types: they are byte offsets all, and never the same promise.

`Appended >= Flushed` and `Appended >= Confirmed`. A sender is answered by the one it was promised; a reader is served
up to `Confirmed`.
"""

from __future__ import annotations

from typing import NewType

Appended = NewType("Appended", int)
"""End of what was written into the mapped log: survives the end of the process, not of the machine."""

Flushed = NewType("Flushed", int)
"""End of what was forced to disk: survives power loss."""

Confirmed = NewType("Confirmed", int)
"""End of what readers may see: the flushed part under SYNC_FLUSH, the appended part under ASYNC_FLUSH."""
