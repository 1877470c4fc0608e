"""Notices about devices that others have waited for: slow ones, stopped ones, or ones that the host does not feed.

They go to the logger `distxla`, whose warnings Python writes to stderr by default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from distxla import clock
from distxla.diagnosis.facts.blocked import DeviceState, Doing
from distxla.location import printable
from distxla.runtime.hosts.remote import proxy_waits
from distxla.wording import named

if TYPE_CHECKING:
    from distxla.runtime.failures.deadlocks import BlockedWait
    from distxla.runtime.failures.reports import PostMortemSnapshot
    from distxla.runtime.hosts.remote import RemoteHost

LOGGER = logging.getLogger("distxla")
STOPPED_S = 2.0  # between checks for stopped processes
NOTICE_S = 5.0  # that a wait lasts before it is worth a notice; the next ones come after twice as long each


class Stragglers:
    """Sees the waits of a call from time to time, and knows how long they have lasted."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A call begins."""
        self._since: dict[tuple[int, ...], float] = {}
        self._next = NOTICE_S
        self._next_silent = STOPPED_S
        self._look_again = clock.now() + STOPPED_S
        self._stopped: tuple[frozenset[int], float] = frozenset(), 0.0  # that were reported, and when

    def look(
        self,
        blocked: Mapping[int, BlockedWait],
        snapshot: Callable[[], PostMortemSnapshot],
        stopped: Callable[[], frozenset[int]] = frozenset,
        hosts: Sequence[RemoteHost] = (),
    ) -> None:
        """Write a notice if a wait has lasted long, if a process is stopped, or an agent says nothing.

        snapshot: reads the state of all devices.  stopped: devices whose processes are.  hosts: their agents are asked
        for signs of life, and for the waits of their proxies if no device causes the wait.
        """
        now = clock.now()
        self._look_at_hosts(hosts)
        self._since = {one.wait: self._since.get(one.wait, now) for one in blocked.values()}
        longest = max((now - since for since in self._since.values()), default=0.0)
        if not blocked:
            self._next = NOTICE_S
        if longest >= self._next:
            self._next *= 2
            tell(notices(snapshot().devices(), longest) or proxy_waits(hosts))
        elif now >= self._look_again:
            self._look_again = now + STOPPED_S
            self._look_at_processes(now, stopped(), snapshot)

    def _look_at_processes(
        self, now: float, stopped: frozenset[int], snapshot: Callable[[], PostMortemSnapshot]
    ) -> None:
        known, told_at = self._stopped
        if stopped and (stopped != known or now - told_at >= 2 * NOTICE_S):
            told_at = now
            tell(stopped_notices(snapshot().devices()))
        self._stopped = stopped, told_at

    def _look_at_hosts(self, hosts: Sequence[RemoteHost]) -> None:
        silent = {host.silent_s(): host for host in hosts}
        longest = max(silent, default=0.0)
        if not longest:
            self._next_silent = STOPPED_S
        elif longest >= self._next_silent:
            self._next_silent *= 2
            tell([silent[longest].silence(longest)])


def tell(lines: Iterable[str]) -> None:
    """Write notices."""
    for line in lines:
        LOGGER.warning("%s", printable(f"distxla: {line}"))


def late(devices: Iterable[DeviceState], seconds: float) -> list[str]:
    """A line for devices that are still in a call that has failed, with the steps that they compute."""
    places: dict[str, list[int]] = {}
    for device in devices:
        places.setdefault(f" {device.place}" if device.instruction else "", []).append(device.device)
    return [
        f"{named(found)} still compute{'s' if len(found) == 1 else ''}{place}, in a call that has failed; the next one "
        f"waits for that, for {seconds:.0f} s so far"
        for place, found in places.items()
    ]


def stopped_notices(devices: Mapping[int, DeviceState]) -> list[str]:
    """A line for the stopped devices at each place."""
    places: dict[str, list[int]] = {}
    for device in devices.values():
        if device.doing is Doing.STOPPED:
            places.setdefault(f" in {device.place}" if device.instruction else "", []).append(device.device)
    return [
        f"{named(found)} {'is' if len(found) == 1 else 'are'} stopped{place}, until SIGCONT"
        for place, found in places.items()
    ]


def notices(devices: Mapping[int, DeviceState], seconds: float) -> list[str]:
    """A line for each device that others wait for and that does not wait itself, and one for each kind of wait for the
    host."""
    waiting = [one for one in devices.values() if one.doing is Doing.WAITS]
    lines = stopped_notices(devices)
    for device in devices.values():
        behind = [one for one in waiting if device.device in one.waits_for]
        if device.doing not in (Doing.COMPUTES, Doing.NOT_BEGUN) or not behind:
            continue
        what = f"{device.doing} {device.place}" if device.instruction else device.doing
        places = dict.fromkeys(one.place for one in behind)
        where = next(iter(places)) if len(places) == 1 else f"{len(places)} different instructions"
        waits = "waits" if len(behind) == 1 else "wait"
        lines.append(
            f"device {device.device} {what}; {named(one.device for one in behind)} {waits} for it in {where}, "
            f"for {seconds:.0f} s so far"
        )
    for one in waiting:
        if one.host and not one.group:
            lines.append(f"device {one.device} waits in {one.place} for {one.host}, for {seconds:.0f} s so far")
    return lines


__all__ = ["Stragglers", "late", "notices", "stopped_notices", "tell"]
