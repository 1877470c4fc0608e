"""State that devices of one host share to communicate: carved out of the control block, configured and zeroed."""

from __future__ import annotations

from typing import Any

from distxla.codegen.program import CommunicatorSpec
from distxla.runtime.memory import ControlBlock
from distxla.runtime.streams import Streams


class Communicators:
    """The communicators of all programs that are loaded on one host. Offsets are bytes in its control block.

    What routines can't know when they are compiled (who is at the other end of a channel, which members are on this
    host) stands in words of the states, which the driver writes with `configure` while nobody runs.
    """

    def __init__(self, block: ControlBlock, streams: Streams | None = None) -> None:
        """streams: whose states outlive failures; None where no program has any."""
        self._block = block
        self._streams = streams
        self._offsets: dict[tuple[Any, ...], int] = {}
        self._areas: list[tuple[int, int]] = []
        self._configured: dict[int, int] = {}

    def place(self, spec: CommunicatorSpec, device: int) -> int | None:
        """The state of the device's group, None where it is in none; equal keys and groups share one state."""
        if spec.stream is not None:
            assert self._streams is not None
            return self._streams.place(device, spec.stream)
        for group, size in zip(spec.groups, spec.state_bytes, strict=True):
            if device in group:
                return self.shared((spec.key, group, size), size)
        return None

    def shared(self, key: tuple[Any, ...], size: int) -> int:
        """State of `size` bytes that everybody who names `key` shares: zeroed when it is made and by `zero`."""
        offset = self._offsets.get(key)
        if offset is None:
            offset = self._offsets[key] = self._block.carve(size)
            self._areas.append((offset, size))
        return offset

    def configure(self, offset: int, *values: int) -> None:
        """Write u32 words from `offset` on; `zero` leaves them as they are."""
        for word, value in enumerate(values, offset // 4):
            if self._configured.get(word) != value:
                self._configured[word] = self._block.words[word] = value

    def clear(self, offset: int, size: int) -> None:
        """Zero a part of some state while nobody runs, but for the words that were configured."""
        self._block.segment.bytes[offset : offset + size] = 0
        for word in range(offset // 4, (offset + size) // 4):
            if word in self._configured:
                self._block.words[word] = self._configured[word]

    def zero(self) -> None:
        """Begin afresh after a failed call, while nobody runs: everything but the configured words."""
        for offset, size in self._areas:
            self._block.segment.bytes[offset : offset + size] = 0
        for word, value in self._configured.items():
            self._block.words[word] = value
