"""What an instruction does besides computing its result; scheduler and passes ask this, never the opcode."""

from __future__ import annotations

from enum import Enum


class Effects(Enum):
    """PURE may be moved, merged, dropped. The others keep their order among themselves and are never dropped,
    but for COLLECTIVE: dropped only if the whole program drops it on every device (we never do).

    RANDOM: has no order, but two of them aren't merged.
    """

    PURE = "pure"
    RANDOM = "random"
    COLLECTIVE = "collective"
    CHANNEL = "channel"
    FEED = "feed"
    CUSTOM = "custom"
