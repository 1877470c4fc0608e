"""Words of the control blocks of all hosts, as the search for deadlocks reads them."""

from __future__ import annotations

from typing import Protocol

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.layout import Word
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.runtime.hosts.remote import RemoteHost

FETCH_BYTES = 4096  # bytes that are fetched at once: all counters of a large group take a few round trips then
PATIENCE_S = 1.0  # with a host that is asked; a call's time limit must not wait for one that never answers


class View(Protocol):
    """The control block of a host."""

    def load(self, word: Word, at: int = 0) -> int:
        """A word of the area that begins at `at`, unsigned."""

    def load_at(self, place: int) -> int:
        """The u32 at an offset."""

    def fence(self) -> None:
        """All that was loaded before is older than what is loaded from here on, or as old."""

    def has_ended(self, device: int) -> bool:
        """Whether the device's part in the call is over. Once true, true until the next call."""


class Here:
    """The driver's own."""

    def __init__(self, block: ControlBlock) -> None:
        self._block = block
        self.load, self.load_at, self.fence = block.load, block.load_at, block.fence

    def has_ended(self, device: int) -> bool:
        return self._block.record(device, control_words.R_COMMAND_KIND) != control_words.CommandKind.RUN


class There:
    """Another host's words, as they were after the last `refresh`."""

    def __init__(self, remote: RemoteHost) -> None:
        self.remote = remote
        self._first = control_words.record_offset(remote.devices.start)
        self._records = b""
        self._pages: dict[int, bytes] = {}
        self._running: frozenset[int] = frozenset()  # sequence numbers of commands that some device runs

    def refresh(self) -> None:
        """Raises as `RemoteHost.fetch`."""
        size = len(self.remote.devices) * control_words.RECORD_BYTES
        self._records, self._pages = self.remote.control_read(self._first, size, PATIENCE_S), {}
        self._running = frozenset(
            self._command(device, control_words.R_COMMAND_SEQUENCE)
            for device in self.remote.devices
            if self._command(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN
        )

    def load(self, word: Word, at: int = 0) -> int:
        return int.from_bytes(self._bytes(at + word, word.bits // 8), "little")

    def load_at(self, place: int) -> int:
        return int.from_bytes(self._bytes(place, 4), "little")

    def fence(self) -> None:
        """Nothing changes between two `refresh`."""

    def has_ended(self, device: int) -> bool:
        """A device without a command may have ended, or not have got it yet. It has ended if its last command was given
        with one that another device of its host still runs."""
        if not self.remote.is_running:
            return True
        runs = self._command(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN
        return not runs and self._command(device, control_words.R_COMMAND_SEQUENCE) in self._running

    def _command(self, device: int, field: Word) -> int:
        return self.load(field, control_words.record_offset(device))

    def _bytes(self, offset: int, size: int) -> bytes:
        at = offset - self._first
        if 0 <= at < len(self._records):
            return self._records[at : at + size]
        page = offset // FETCH_BYTES * FETCH_BYTES
        if page not in self._pages:
            self._pages[page] = self.remote.control_read(page, FETCH_BYTES, PATIENCE_S)
        return self._pages[page][offset - page : offset - page + size]
