"""Effects of an instruction besides computing its result; scheduler and passes ask this, never the opcode."""

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

    @property
    def is_free(self) -> bool:
        """Without an order of its own: may be moved, and dropped where its result has no reader."""
        return self in (Effects.PURE, Effects.RANDOM)


COMMUNICATING = (Effects.COLLECTIVE, Effects.CHANNEL, Effects.FEED)  # with other devices or with the host
