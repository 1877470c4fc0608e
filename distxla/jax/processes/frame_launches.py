"""Calls in which several processes take part, as the owner of the devices is told of them.

A program that calls functions, is checked or has streams is the owner's to issue: intent, ready, over. Calls of all
others this process issues itself (board_calls.py); of those that go through the call queue the owner is told early,
and it tells of those that do not go as they should.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.errors import DistxlaError
from distxla.jax.processes.board_calls import INTERRUPT_S, BoardCalls, Key, Outcome
from distxla.jax.processes.connection_to_owner import SLICE_S, OwnersConnection
from distxla.jax.processes.launches import LaunchedExecutable, LaunchSite, Serving
from distxla.jax.processes.messages import (
    CALLBACK,
    INTERRUPTED,
    SKIPPED,
    Done,
    Launch,
    Over,
    Ready,
    Refused,
    Served,
    Trouble,
    pack_json,
    unpack_json,
)
from distxla.jax.processes.places import user_site
from distxla.jax.processes.told_errors import pack_error, unpack_error
from distxla.lazy_dataclass import replace
from distxla.wire.frame import Frame


class FrameLaunch:
    """See launches.Launch, and call_queue.Launch. ordinal: of the call among those of its set, once the owner has been
    told of it.  made: its place among all calls, where this process may issue some; None where none.  is_own: whether
    this process issues its part itself.  is_over: whether `verdict` is how it has ended."""

    def __init__(
        self,
        launches: FrameLaunches,
        executable: LaunchedExecutable,
        site: LaunchSite,
        line: str,
        boards: BoardCalls | None,
    ) -> None:
        """line: "file:line" as JAX tells it; "" where it does not."""
        self.verdict: DistxlaError | None = None
        self.is_refused = False
        self.ordinal: int | None = None
        self.program = executable.launched
        self.site = site
        self.is_own = boards is not None and boards.issues(executable)
        self.is_told = not (self.is_own and len(self.program.members) == 1)
        logged = line or (f"{site.file}:{site.line}" if site.line else "")
        self.made = None if boards is None else boards.made(self.program, logged, by_frames=self.is_told)
        self.is_over = False
        self._launches = launches
        self._boards = boards
        self._executable = executable
        self._is_posted = self._is_skipped = self._is_done = False
        self._has_news = threading.Event()

    def begin(self) -> None:
        """Give it its place among all calls, and tell the owner in their order."""
        if not self._is_posted:
            self._launches.make(self)  # twice where an interrupt comes behind it
            self._is_posted = True

    @property
    def key(self) -> Key:
        ordinal = self.ordinal if self.made is None or not self.made.is_made else int(self.made.ordinal)
        assert ordinal is not None
        return self.program.set, ordinal

    def run(self, rows: NDArray[np.uint64], kept: list[Any]) -> None:
        """Block until the devices of this process are done. rows: offsets of arguments and results, by device.  kept:
        memory that they use. Raises the verdict, and what ends the call otherwise."""
        self.begin()
        connection = self._launches.connection
        connection.flush()
        if self.verdict is not None:
            raise self.verdict
        if self.is_own:
            self._run_own(rows, kept)
            return
        with ExitStack() as stack:
            try:
                self._executable.load()
                self._launches.await_decisions()
                serving = stack.enter_context(self._executable.serving())
            except BaseException as error:
                self.skip(error)
                raise
            connection.tell(Ready(*self.key), [rows.tobytes()])
            try:
                self._wait(serving)
            except BaseException:
                self._launches.keep(kept)
                raise
        self._launches.settled()

    def _run_own(self, rows: NDArray[np.uint64], kept: list[Any]) -> None:
        assert self._boards is not None
        assert self.made is not None
        try:
            self._executable.load()
        except BaseException as error:
            self.skip(error)
            raise
        try:
            self._boards.run(self._executable, self.made, rows, self._outcome, kept)
        finally:
            self._launches.left(self)

    def _outcome(self) -> Outcome | None:
        return Outcome(self.verdict, self.is_refused) if self.is_over else None

    def _wait(self, serving: Serving) -> None:
        launches = self._launches
        reason: DistxlaError | None = None
        end = math.inf
        has_told = has_served = False
        while not self.is_over:
            self._has_news.wait(SLICE_S)
            self._has_news.clear()
            if self.is_over:
                break
            if launches.connection.failure is not None:
                raise launches.connection.failure
            if clock.now() > end:
                assert reason is not None
                raise reason
            if self._is_done and not has_served and serving.finish(self._is_to_stop):
                has_served = True
                if serving.failure is None:
                    launches.connection.tell(Served(*self.key))
            if not has_told and (reason := launches.stop_reason()) is not None:
                has_told, end = True, clock.now() + INTERRUPT_S
                launches.tell(self, INTERRUPTED, reason)
            if not has_told and (failure := serving.failure) is not None:
                has_told = True
                launches.tell(self, CALLBACK, failure)
        if self.verdict is not None:
            raise reason or self.verdict

    def _is_to_stop(self) -> bool:
        """Whether there is more to do than to wait for functions."""
        launches = self._launches
        return self.is_over or launches.connection.failure is not None or launches.stop_reason() is not None

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        """See launches.Launch."""
        if not self._is_skipped:
            self._is_skipped = True
            self.begin()
            if self.is_told:
                self._launches.skip(self, why, by_argument=by_argument)

    def devices_done(self) -> None:
        """The owner has told that the devices are done, and asks for what they have called here."""
        self._is_done = True
        self._has_news.set()

    def end(self, verdict: DistxlaError | None, *, is_refused: bool = False) -> None:
        """The owner has told how it ended. is_refused: it never starts."""
        self.verdict, self.is_refused = verdict, is_refused
        self.is_over = True
        self._has_news.set()


class FrameLaunches:
    """The launches of this process. connection: to the owner.  boards: those that it issues itself; None where the
    owner issues all.

    stop_reason: why the call that this thread runs should end.  refused: told of a launch that will never run, maybe
    while earlier ones run.  take: has the call queue take the native call that is in flight.
    """

    def __init__(
        self,
        connection: OwnersConnection,
        stop_reason: Callable[[], DistxlaError | None],
        refused: Callable[[FrameLaunch, DistxlaError], object],
        take: Callable[[], object] = lambda: None,
    ) -> None:
        self.connection = connection
        self.boards: BoardCalls | None = None
        self.stop_reason = stop_reason
        self._refuse = refused
        self._take = take
        self._lock = threading.RLock()  # of the fields below; a collection amid it may call `keep_after_failure`
        self._ordinals: dict[int, int] = {}  # of the next call of each set, without `boards`
        self._turn = 0
        self._unusable: DistxlaError | None = None
        self._active: dict[Key, FrameLaunch] = {}
        self._refused: dict[Key, DistxlaError] = {}  # that this process has not called yet
        self._told: dict[Key, Outcome] = {}  # of native calls
        self._undecided: set[Key] = set()
        self._made: deque[FrameLaunch] = deque()  # those that may have a place, and that the owner is not told of
        self._news = threading.Event()
        self._kept: list[Any] = []
        connection.pushed[Over] = self._over
        connection.pushed[Done] = self._done
        connection.pushed[Refused] = self._told_refused
        connection.lost = self._lost

    def of(self, executable: LaunchedExecutable, line: str = "") -> FrameLaunch:
        """See launches.Launches."""
        return FrameLaunch(self, executable, replace(user_site(), program=executable.launched.name), line, self.boards)

    # --- in the order of all calls

    def make(self, launch: FrameLaunch) -> None:
        """Give a launch its place, unless it has one, and tell the owner soon."""
        self._made.append(launch)  # first: who has a place is found there
        if self.boards is not None and launch.made is not None:
            self.boards.count(launch.made)
        self.connection.post(self._send)

    def _send(self) -> None:
        """Tell the owner of all launches that have a place; called by the connection."""
        newest = math.inf if self.boards is None else self.boards.turn  # all before it have their places
        ready = []
        for _ in range(len(self._made)):
            launch = self._made.popleft()
            if launch.made is None or (launch.made.is_made and launch.made.turn < newest):
                ready.append(launch)
            else:
                self._made.append(launch)  # it is posted once more
        ready.sort(key=lambda launch: 0 if launch.made is None else launch.made.turn)
        for launch in ready:
            if launch.ordinal is None:
                self._send_one(launch)

    def _send_one(self, launch: FrameLaunch) -> None:
        program, made = launch.program, launch.made
        with self._lock:
            if made is None:
                launch.ordinal, turn = self._ordinals.get(program.set, 0), self._turn
                self._ordinals[program.set], self._turn = launch.ordinal + 1, turn + 1
            else:
                launch.ordinal, turn = int(made.ordinal), int(made.turn)
            key = launch.key
            told = self._told.pop(key, None)  # between its getting a place and now
            if key in self._refused:
                told = Outcome(self._refused.pop(key), is_refused=True)
            if self.connection.failure is not None:
                told = told or Outcome(self.connection.failure)
            if told is None:
                self._active[key] = launch
        if launch.is_told:
            frame = Launch(program.set, program.program, launch.ordinal, turn)
            self.connection.send_now(frame, [launch.site.pack()])
        if told is not None:
            launch.end(told.error, is_refused=told.is_refused)
            if told.error is not None:
                self._refuse(launch, told.error)
            self._bar()

    def _next_ordinal(self, number: int) -> int:
        return self._ordinals.get(number, 0) if self.boards is None else self.boards.next_ordinal(number)

    # --- calls that this process issues itself

    @property
    def is_undecided(self) -> bool:
        """See board_calls.Owner."""
        return bool(self._undecided)

    def complain(self, key: Key, kind: int, why: BaseException | None) -> None:
        """See board_calls.Owner."""
        self.connection.tell(Trouble(*key, kind), [pack_json({} if why is None else {"error": pack_error(why)})])

    def outcome(self, key: Key) -> Outcome | None:
        """See board_calls.Owner."""
        with self._lock:
            refused = self._refused.pop(key, None)  # before the process has called it
            found = self._told.pop(key, None)
        if refused is not None:
            self._bar()
            return Outcome(refused, is_refused=True)
        return found

    def await_news(self, seconds: float) -> None:
        """See board_calls.Owner."""
        self._news.wait(seconds)
        self._news.clear()

    def await_decisions(self) -> None:
        """Block until it is known what becomes of all calls for which this process waits no more. Raises why it should
        not wait."""
        while self._undecided:
            if (reason := self.lost or self.stop_reason()) is not None:
                raise reason
            self.await_news(SLICE_S)

    def leave_undecided(self, key: Key) -> None:
        """See board_calls.Owner."""
        self._undecided.add(key)
        self._bar()

    def left(self, launch: FrameLaunch) -> None:
        """This process's part of a call is over, or it waits for it no more."""
        with self._lock:
            self._active.pop(launch.key, None)

    def _bar(self) -> None:
        """Have no native call issued while something is to be known first. May be called again."""
        if self.boards is None:
            return
        self.boards.bar(bool(self._undecided or self._refused))
        if self._undecided or self._refused:  # maybe from a moment ago on
            self.boards.bar(True)

    # --- calls that the owner issues

    def tell(self, launch: FrameLaunch, kind: int, why: BaseException) -> None:
        """Tell the owner what is the matter with a launch."""
        self.complain(launch.key, kind, why)

    def skip(self, launch: FrameLaunch, why: BaseException, *, by_argument: bool) -> None:
        """See FrameLaunch.skip."""
        payload = pack_json({"error": pack_error(why), "by_argument": by_argument})
        if launch.made is not None:
            self.leave_undecided(launch.key)

        def send() -> None:
            with self._lock:
                self._active.pop(launch.key, None)
            self.connection.send_now(Trouble(*launch.key, SKIPPED), [payload])
            if launch.verdict is not None:  # was told before
                self.decided(launch.key)

        self.connection.post(send)
        self.connection.flush()

    def decided(self, key: Key) -> bool:
        """It is known what becomes of a call; whether nobody waits for it."""
        was_undecided = key in self._undecided
        if was_undecided and self.boards is not None:
            self.boards.let_go(key)  # before anything else is issued
        self._undecided.discard(key)
        self._bar()
        return was_undecided

    @property
    def lost(self) -> DistxlaError | None:
        """Why no call can run any more."""
        return self.connection.failure or self._unusable

    def keep(self, things: list[Any]) -> None:
        """Hold memory of a call that has failed, in which devices may still compute."""
        with self._lock:
            self._kept += things

    def keep_after_failure(self, things: list[Any]) -> None:
        """As `keep`, where a call has failed and none has succeeded since."""
        with self._lock:
            if self._kept:
                self._kept += things

    def settled(self) -> None:
        """A call has succeeded, before which the owner has waited for devices that were late."""
        with self._lock:
            kept, self._kept = self._kept, []
        del kept

    def _done(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, Done)
        with self._lock:
            launch = self._active.get((frame.set, frame.ordinal))
        if launch is not None:
            launch.devices_done()

    def _over(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, Over)
        self._take_outcome((frame.set, frame.ordinal), payload, is_refused=False)

    def _told_refused(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, Refused)
        self._take_outcome((frame.set, frame.ordinal), payload, is_refused=True)

    def _take_outcome(self, key: Key, payload: bytearray, *, is_refused: bool) -> None:
        told = unpack_json(payload) if payload else None
        verdict = None if told is None else unpack_error(told)
        if told is not None and told.get("unusable") is True:
            self._unusable = verdict
        with self._lock:
            launch = self._active.pop(key, None)
            is_early = launch is None and is_refused and key[1] >= self._next_ordinal(key[0])
            if is_early and verdict is not None:
                self._refused[key] = verdict
        if launch is not None:
            launch.end(verdict, is_refused=is_refused)
            if verdict is not None:
                self._refuse(launch, verdict)
        if not self.decided(key) and launch is None:
            self._tell_native(key, Outcome(verdict, is_refused))
            self.decided(key)  # this process may have left it undecided meanwhile
        self._news.set()

    def _tell_native(self, key: Key, outcome: Outcome) -> None:
        """Of a call that is in flight natively, or of one that was over here before the owner took it, or of one that
        this process has just begun."""
        if self.boards is None:
            return
        with self._lock:
            if key not in self._refused:
                older = [other for other in self._told if other[0] == key[0] and other[1] < key[1]]
                for other in older:  # which were over here before
                    del self._told[other]
                self._told[key] = outcome
        if outcome.error is not None and key[1] < self._next_ordinal(key[0]):
            self._take()

    def _lost(self, failure: DistxlaError) -> None:
        with self._lock:
            active, self._active = list(self._active.values()), {}
        for launch in active:
            launch.end(failure)
            self._refuse(launch, failure)
        self._news.set()


__all__ = ["FrameLaunch", "FrameLaunches"]
