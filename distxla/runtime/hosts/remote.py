"""Another host as the driver sees it: commands over an authenticated connection to the agent that lives there."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.collectives.protocols import call_loops
from distxla.collectives.transports.transport import Restart
from distxla.errors import ClusterError, DamagedMessageError, ReplicaLostError
from distxla.ir.unwritten import empty
from distxla.location import printable
from distxla.runtime.hosts import commands
from distxla.runtime.hosts.slice import Slice
from distxla.runtime.values.host import Lost
from distxla.runtime.values.interrupts import deferred_interrupt
from distxla.wire.checksums import Buffer
from distxla.wire.connection import Connection
from distxla.wire.frame import Frame

LOGGER = logging.getLogger("distxla")
NOTICE_S = 5.0  # that an answer takes before it is worth a notice; the next ones come after twice as long each
SIGN_S = 0.5  # between requests for an agent's sign of life
LONGEST_HOW = 300  # characters
ANSWER_S = 2.0  # for an agent to report the state of its devices
CLOCK_READINGS = 8
CLOCK_S = 60.0  # for which a reading of the other clock is used: clocks without adjustment part by 0.1 ms a second
END_S = 10.0  # for an agent to get its devices back, by force if need be


class RemoteHost:
    """One agent's host; see HostEnd. A thread of its own receives the agent's frames.

    lost: all replicas once the agent can't be reached.  ahead: by how many ns its CLOCK_MONOTONIC was ahead of this
    one's at the last look.  injected: by number the effect of each fault that its proxy has injected.  driver: the
    driver's own host: that thread ends its call after `lost`, `failure` or `damage` has changed or a call has failed,
    and then wakes waiting threads.  news: notified of every event.

    The driver's own host has an agent, too, where a run has several hosts: it holds that host's proxy, and no devices.
    """

    def __init__(
        self,
        index: int,
        name: str,
        devices: range,
        connection: Connection,
        pids: Mapping[int, int],
        news: threading.Condition,
        driver: Slice,
    ) -> None:
        self.index = index
        self.name = name
        self.devices = devices
        self.lost: dict[int, Lost] = {}
        self.failure = ""
        self.damage = ""
        self.injected: dict[int, str] = {}
        self.ahead = 0
        self.ahead_at = -CLOCK_S  # of clock.now
        self.connection = connection
        self.on_user_end: Callable[[int, str, int | None], None] = lambda number, how, status: None
        self._pids = dict(pids)
        self._news = news
        self._driver = driver
        self._areas: dict[int, list[tuple[int, int]]] = {}
        self._running = False
        self._run_ns: dict[int, int] = {}
        self._answers: dict[type[Frame], int] = {}  # how many of each have come
        self._records: dict[int, bytes] = {}
        self._waits: list[str] = []
        self._fetches: dict[int, _Fetch] = {}
        self._fetched = 0
        self._gone = self._closing = False
        self._sign = _Fetch.answered(), 0, 0.0  # of life: asked for when
        self._ending: list[int] = []
        self._expected_end = self._expected_clear = 0  # answers of these kinds that were asked for
        self._thread = threading.Thread(target=self._receive, name=f"distxla-host-{index}", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether the agent can't be reached any more."""
        return self._gone

    # --- calls

    def place(self, number: int, areas: Sequence[tuple[int, int]]) -> None:
        """Where a program finds its arguments and results: (offset, bytes) in the control block, sent with a call."""
        self._areas[number] = list(areas)

    def forget(self, number: int) -> None:
        """A program was unloaded."""
        self._areas.pop(number, None)

    def issue(self, numbers: Mapping[int, int], repeat: int) -> None:
        """See HostEnd. The offsets of arguments and results in the driver's control block are sent along."""
        if not numbers:
            return
        view = self._driver.control.view
        areas = [area for number in dict.fromkeys(numbers.values()) for area in self._areas.get(number, ())]
        data = [view[offset : offset + size] for offset, size in areas]
        self._running = True
        self._send(commands.Run(repeat), commands.pack_run(numbers, areas, data))

    @property
    def is_running(self) -> bool:
        return self._running and not self.is_lost

    def wait(self, nanoseconds: int) -> int:
        """See HostEnd."""
        with self._news:
            if self.is_running and not self._driver.is_aborted:
                self._news.wait(nanoseconds / 1e9)
            if self._driver.is_aborted or self.is_lost:  # a host is lost before it aborts the driver's
                return call_loops.CALL_ABORTED
            return call_loops.CALL_AGAIN if self.is_running else call_loops.CALL_DONE

    def run_ns(self, device: int) -> int:
        """See HostEnd."""
        return self._run_ns.get(device, 0)

    def begin_end(self, devices: Collection[int], *, patient: bool = False) -> None:
        """See HostEnd."""
        self._ending = list(devices)
        wanted = [commands.pack_devices(devices)]
        with deferred_interrupt():  # an answer is expected if and only if it was asked for
            self._expected_end += 1
            self._send(commands.Leave() if patient else commands.End(), wanted)

    def has_ended(self, seconds: float) -> bool:
        """See HostEnd."""
        if not self._wait_for(commands.Ended, self._expected_end, seconds) and not self.is_lost:
            return False
        self._running = False
        return True

    def finish_end(self) -> None:
        """See HostEnd."""
        if not self._wait_for(commands.Ended, self._expected_end, END_S):
            self._lose(f"it did not end a call within {END_S:g} s")
        self._running = False

    def still_there(self) -> dict[int, bytes]:
        """See HostEnd; all, without records, until all are back."""
        return {} if self.has_ended(0) else dict.fromkeys(self._ending, b"")

    def begin_clear(self, restart: Restart) -> None:
        """See HostEnd. Allows calls again, too."""
        packed = [commands.pack_clear(restart)]
        with deferred_interrupt():
            self._expected_clear += 1  # not one more than have come: an interrupt may have left one that is to come
            self._send(commands.Clear(restart.epoch), packed)

    def finish_clear(self) -> None:
        """See HostEnd."""
        if not self._wait_for(commands.Cleared, self._expected_clear, END_S):
            self._lose(f"it was not ready for another call within {END_S:g} s")

    def abort(self) -> None:
        """Make every wait on the host return; does not wait for it."""
        self._send(commands.Abort())

    # --- state of devices

    def begin_records(self) -> int:
        """See HostEnd."""
        if not self.devices:
            return 0
        expected = self._answers.get(commands.DeviceRecords, 0) + 1
        self._send(commands.Dump())
        return expected

    def records(self, expected: int | None = None) -> dict[int, bytes]:
        """See HostEnd: those that came last; with `expected` those that were asked for, if they come in ANSWER_S."""
        if expected is not None:
            self._wait_for(commands.DeviceRecords, expected, ANSWER_S)
        return self._records

    def begin_waits(self) -> int:
        """Ask which hosts the host's proxy waits for; returns a number for `waits`."""
        expected = self._answers.get(commands.Waiting, 0) + 1
        self._send(commands.Waits())
        return expected

    def waits(self, expected: int) -> list[str]:
        """A line for each long wait of the host's proxy; none if the agent does not answer in time."""
        return self._waits if self._wait_for(commands.Waiting, expected, ANSWER_S) else []

    # --- memory

    def control_write(self, offset: int, data: bytes) -> None:
        """See Host."""
        self._send(commands.WriteControl(offset), [data])

    def control_zero(self, offset: int, size: int) -> None:
        """See Host."""
        self.control_write(offset, bytes(size))

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        """Bytes of the host's control block, as they are now; blocks. Raises as `fetch`."""
        return self._fetch(size, lambda request: commands.ReadControl(request, offset, size), seconds).tobytes()

    def clock_ahead(self) -> int:
        """By how many ns the host's CLOCK_MONOTONIC is ahead of this one's, to about half the time of a round trip.

        Blocks for some. Raises ReplicaLostError, ClusterError if closed, or if it does not answer within ANSWER_S.
        """
        found = []
        for _ in range(CLOCK_READINGS):
            answer = bytearray(8)
            asked = clock.now_ns()
            if not self._ask(commands.Clock, memoryview(answer), ANSWER_S):
                self._require_reachable()
                raise ClusterError(f"{self.name} can't be asked for its clock")
            answered = clock.now_ns()
            found.append((answered - asked, int.from_bytes(answer, "little") - (asked + answered) // 2))
        self.ahead, self.ahead_at = min(found)[1], clock.now()
        return self.ahead

    def look_at_clock(self) -> None:
        """Bring `ahead` up to date where that is due and the host answers. Blocks as `clock_ahead`."""
        if self._closing or self.is_lost or clock.now() - self.ahead_at < CLOCK_S:
            return
        with contextlib.suppress(ClusterError, ReplicaLostError):
            self.clock_ahead()

    def write(self, device: int, offset: int, data: NDArray[np.uint8]) -> None:
        """Copy bytes into a device's memory. Raises ReplicaLostError."""
        if data.nbytes:
            self._send(commands.Write(device, offset), [data.data])
            self._require_reachable()

    def fetch(self, device: int, offset: int, size: int, seconds: float | None = None) -> NDArray[np.uint8]:
        """Bytes of a device's memory; blocks until they are here. Raises ReplicaLostError, ClusterError if closed, or
        if they have not come within `seconds`."""
        return self._fetch(size, lambda request: commands.Read(request, device, offset, size), seconds)

    def _fetch(self, size: int, ask: Callable[[int], Frame], seconds: float | None) -> NDArray[np.uint8]:
        found = empty([size], np.uint8)
        if size and not self._ask(ask, found.data, seconds):
            if self._closing:
                raise ClusterError(f"the cluster is closed: arrays on {self.name} can't be fetched any more")
            self._require_reachable()
            raise ClusterError(f"{self.name} did not answer within {seconds:g} s")
        return found

    def await_word(self, offset: int, value: int, seconds: float) -> None:
        """Block while the u32 at `offset` of the host's control block is `value`, at most that long."""
        milliseconds = int(seconds * 1000) + 1
        self._ask(
            lambda request: commands.Await(request, offset, value & 0xFFFFFFFF, milliseconds), memoryview(bytearray())
        )

    def wake(self, offset: int) -> None:
        """Wake the devices that sleep on the u32 at `offset` of the host's control block."""
        self._send(commands.Wake(offset))

    def _ask(self, ask: Callable[[int], Frame], target: memoryview, seconds: float | None = None) -> bool:
        """Ask for bytes, which fill `target`, and wait for them; False where they can't come any more, or not in time.
        Notices tell of long waits. ask: the frame, for the number of the request."""
        fetch, begin = _Fetch(target), clock.now()
        end = math.inf if seconds is None else begin + seconds
        with self._news:
            self._fetched = number = (self._fetched + 1) & 0xFFFFFFFF
            self._fetches[number] = fetch
        try:
            self._send(ask(number))
            with self._news:
                self._await_fetched(fetch, begin, end)
        finally:
            with self._news:
                self._fetches.pop(number, None)
        return fetch.done

    def _await_fetched(self, fetch: _Fetch, begin: float, end: float) -> None:
        """With the lock. The loop is not directly in the with-body: an interrupt there could leave the lock taken."""
        notice = NOTICE_S
        while not fetch.done and not self.is_lost and not self._closing and clock.now() < end:
            self._news.wait(0.2)
            if (waited := clock.now() - begin) >= notice and not fetch.done:
                notice *= 2
                LOGGER.warning("%s", printable(f"distxla: {self.silence(waited)}"))

    def silence(self, seconds: float) -> str:
        """A notice that the agent has not answered for so long."""
        return f"the agent of {self.name} says nothing, for {seconds:.0f} s so far; its process may be stopped"

    def silent_s(self) -> float:
        """Age in seconds of an unanswered request for a sign of life, else 0. Sends one when due; does not wait."""
        if self.is_lost or self._closing:
            return 0.0
        now, (sign, number, asked) = clock.now(), self._sign
        if not sign.done:
            return now - asked
        if now - asked >= SIGN_S:
            sign = _Fetch(memoryview(bytearray(8)))
            with self._news:
                self._fetches.pop(number, None)
                self._fetched = number = (self._fetched + 1) & 0xFFFFFFFF
                self._fetches[number] = sign
            self._sign = sign, number, now
            self._send(commands.Clock(number))
        return 0.0

    def punch(self, offset: int, size: int, *, common: bool) -> None:
        """Give pages back: of all the host's device memories, or of the memory that they share."""
        self._send(commands.Punch(offset, size, int(common)))

    # --- life

    def watch(self, number: int, pid: int) -> None:
        """Have `on_user_end` called, in the receiving thread, when this process of the host has ended: see Users."""
        self._send(commands.Watch(number, pid))

    def bid_farewell(self) -> None:
        """Ask the agent to end the replicas; `close` waits for it."""
        self._closing = True
        self._expected_end += 1
        self._send(commands.Bye())

    def wait_ended(self, seconds: float = 6.0) -> None:
        """Wait until the agent has seen all its replicas end, after `bid_farewell`."""
        self._wait_for(commands.Ended, self._expected_end, seconds)

    def close(self, seconds: float = 2.0) -> None:
        """Wait until the agent has hung up, and close the connection."""
        self._closing = True
        self._thread.join(seconds)
        self.connection.close()
        self._thread.join()

    # --- the connection

    def _send(self, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        """Send a frame; an agent that can't be reached is noted as lost, and all waits end.

        Ctrl-C takes effect behind the frame: nothing can follow a part of one, so the host would be lost. The second
        Ctrl-C amid a frame does end the connection.
        """
        with deferred_interrupt():
            try:
                self.connection.send(frame, payload)
            except ClusterError as error:
                self._lose(error.message)

    def _lose(self, reason: str) -> None:
        """Note that the agent is gone; in any thread."""
        with self._news:
            if not (self._gone or self._closing):
                self._note_loss(reason)
            self._gone = True
        self.connection.close()
        if self._closing:
            with self._news:
                self._news.notify_all()
        else:
            self._tell()

    def _note_loss(self, reason: str) -> None:
        if not self.devices:
            self.failure = self.failure or f"the proxy of {self.name} was lost ({reason})"
            return
        first, last = self.devices.start, self.devices.stop - 1
        which = f"device {first}" if first == last else f"the devices {first} to {last}"
        for device in self.devices:
            self.lost[device] = Lost(self._pids[device], self.name, f"{self.name} with {which}", reason)

    def _tell(self) -> None:
        self._driver.alarm()
        with self._news:
            self._news.notify_all()

    def _require_reachable(self) -> None:
        if self.is_lost and self.damage:
            raise DamagedMessageError(self.damage)
        if self.is_lost:
            raise ReplicaLostError(f"{self.name} can't be reached any more")

    def _wait_for(self, kind: type[Frame], expected: int, seconds: float) -> bool:
        end = clock.now() + seconds
        with self._news:
            return self._await_answers(kind, expected, end)

    def _await_answers(self, kind: type[Frame], expected: int, end: float) -> bool:
        """With the lock; a function of its own for the reason that `_await_fetched` has."""
        while self._answers.get(kind, 0) < expected:
            left = end - clock.now()
            if left <= 0 or self.is_lost:
                return False
            self._news.wait(min(left, 0.1))
        return True

    def _receive(self) -> None:
        try:
            while True:
                self._handle(self.connection.receive())
        except DamagedMessageError as error:
            reason = error.message
            self.damage = self.damage or f"the connection from {self.name} to the driver: {reason}"
        except ClusterError as error:
            reason = error.message
        self._lose(reason)

    def _handle(self, frame: Frame) -> None:
        connection = self.connection
        if isinstance(frame, commands.Data):
            with self._news:
                fetch = self._fetches.get(frame.request)
            if fetch is None or len(fetch.target) != connection.length:
                connection.discard()
                return
            connection.receive_into(fetch.target)
            fetch.done = True
        elif isinstance(frame, commands.Done):
            self._run_ns.update(commands.unpack_pairs(memoryview(connection.receive_bytes())))
            if frame.outcome != call_loops.CALL_DONE:
                self._driver.alarm()
            self._running = False
        elif isinstance(frame, commands.DeviceRecords | commands.Ended):
            self._records = commands.unpack_records(connection.receive_bytes())
        elif isinstance(frame, commands.Waiting):
            self._waits = connection.receive_bytes().decode(errors="replace").splitlines()
        elif isinstance(frame, commands.ReplicaEnded):
            device = frame.device
            how = connection.receive_bytes().decode(errors="replace")[:LONGEST_HOW]
            if device in self.devices:
                self.lost.setdefault(device, Lost(self._pids[device], self.name, how=how))
            self._driver.alarm()
        elif isinstance(frame, commands.Failed):
            text = connection.receive_bytes().decode(errors="replace")
            if frame.damaged:
                self.damage = self.damage or f"{self.name}: {text}"
            self.failure = self.failure or f"{self.name}: {text}"
            self._driver.alarm()
        elif isinstance(frame, commands.Injected):
            self.injected[frame.number] = connection.receive_bytes().decode(errors="replace")
        elif isinstance(frame, commands.ProcessEnded):
            how = connection.receive_bytes().decode(errors="replace")[:LONGEST_HOW]
            self.on_user_end(frame.number, how, None if frame.status == commands.UNKNOWN_STATUS else frame.status)
        elif not isinstance(frame, commands.Cleared):
            raise ClusterError(f"the agent of {self.name} sent a {frame.NAME} frame, which only the driver sends")
        with self._news:
            self._answers[type(frame)] = self._answers.get(type(frame), 0) + 1
            self._news.notify_all()


class _Fetch:
    """Bytes in flight."""

    __slots__ = ("done", "target")

    def __init__(self, target: memoryview) -> None:
        self.target = target
        self.done = False

    @classmethod
    def answered(cls) -> _Fetch:
        """A fetch without a waiting thread."""
        found = cls(memoryview(b""))
        found.done = True
        return found


def proxy_waits(agents: Sequence[RemoteHost]) -> list[str]:
    """A line for each long wait of these agents' proxies. Blocks for a round trip to each host."""
    asked = [(agent, agent.begin_waits()) for agent in agents]
    return [line for agent, number in asked for line in agent.waits(number)]
