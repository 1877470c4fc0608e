"""Names of the streams between a device and its host."""

from __future__ import annotations

from enum import Enum

from distxla.lazy_dataclass import dataclass


class StreamKind(Enum):
    """Infeed and recv lead to the device, outfeed and send to the host."""

    INFEED = "infeed"
    OUTFEED = "outfeed"
    RECV = "recv"
    SEND = "send"

    @property
    def leads_to_device(self) -> bool:
        return self in (StreamKind.INFEED, StreamKind.RECV)


@dataclass(frozen=True, slots=True)
class StreamKey:
    """Which of a device's streams. channel: of host transfers, 0 where the text gives none; 0 for feeds."""

    kind: StreamKind
    channel: int = 0

    @property
    def _call(self) -> int:
        return self.channel - FIRST_HOST_CALL - 1

    @property
    def is_host_call(self) -> bool:
        """Whether it carries operands or results of calls of the driver's functions."""
        return self.channel >= FIRST_HOST_CALL

    @property
    def code(self) -> str:
        """`recv:3`, for `of_code` in another process."""
        return f"{self.kind.value}:{self.channel}"

    @staticmethod
    def of_code(code: str) -> StreamKey:
        """ValueError for another text."""
        kind, _, channel = code.partition(":")
        return StreamKey(StreamKind(kind), int(channel))

    def __str__(self) -> str:
        """`infeed`, `recv on channel 3`, `recv of host call 0`; another text for each stream of a device."""
        if self.is_host_call:
            return f"{self.kind.value} of host call{'s' if self.channel == FIRST_HOST_CALL else f' {self._call}'}"
        channel = f" on channel {self.channel}" if self.kind in (StreamKind.RECV, StreamKind.SEND) else ""
        return f"{self.kind.value}{channel}"


FIRST_HOST_CALL = 1 << 30  # channels from here on carry calls of the driver's functions (rewrites/host_calls.py)
INFEED, OUTFEED = StreamKey(StreamKind.INFEED), StreamKey(StreamKind.OUTFEED)
