"""What a call asks of a host, this process's own or another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from distxla.collectives.transports.transport import Restart
from distxla.runtime.values.host import Host, Lost


class HostEnd(Host, Protocol):
    """A host's end of calls. One call runs at a time. Two steps that all hosts take at once are two methods each.

    The driver's host has two where a run has several hosts: one for its devices, and its agent, which has none.

    failure: why the host can't go on, though its replicas live, or "".  damage: which message to the host or from it
    was damaged, repeated or lost, or "".
    """

    failure: str
    damage: str

    @property
    def lost(self) -> Mapping[int, Lost]:
        """Replicas that have ended, or can't be reached any more, until now."""

    # --- calls

    def issue(self, numbers: Mapping[int, int], repeat: int) -> object:
        """Begin to run program numbers[device] on each of these devices of the host, if any. Does not wait."""

    def wait(self, nanoseconds: int) -> int:
        """Wait for the end of the call: CALL_DONE, CALL_ABORTED once something has failed on any host, or CALL_AGAIN
        after the time, a signal, or news of another host."""

    def run_ns(self, device: int) -> int:
        """Nanoseconds that the last call took on a device."""

    # --- the end of a call that has failed

    def begin_end(self, devices: Collection[int], *, patient: bool = False) -> None:
        """Release every wait, and begin to get these devices of the host back. Does not wait.

        patient: those that still compute are left to that until `finish_end`, if that is ever called.
        """

    def has_ended(self, seconds: float) -> bool:
        """Wait so long until these devices are back; whether they are, or the host is lost."""

    def finish_end(self) -> None:
        """Wait until these devices are back, by force where they do not come."""

    def still_there(self) -> Mapping[int, bytes]:
        """Those of them that are not back: their records now, or b"" where these aren't known."""

    def begin_clear(self, restart: Restart) -> None:
        """Begin to reset the host's transports for the next call."""

    def finish_clear(self) -> None:
        """Wait until that is done. The driver's own host is the last: its proxy has accessed its memory until then."""

    # --- state of devices

    def begin_records(self) -> int:
        """Ask for the devices' records; a number for `records`."""

    def records(self, expected: int | None = None) -> Mapping[int, bytes]:
        """The devices' records as they are known. expected: as they were when `begin_records` asked for them or, if
        that was before, when another host failed."""
