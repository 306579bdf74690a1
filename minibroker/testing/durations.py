"""How long tests wait, unless they say."""

from __future__ import annotations

from typing import Final

DEFAULT_TIMEOUT: Final = "5 s"
"""How long a test waits for anything."""
DEFAULT_SILENCE: Final = "200 ms"
"""How long it sees that nothing is produced."""
