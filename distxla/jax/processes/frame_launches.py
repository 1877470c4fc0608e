"""Calls in which several processes take part, by frames through the owner: intent, ready, over."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.errors import DistxlaError
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

INTERRUPT_S: Final = 5.0  # for the owner to end a call that was interrupted here

_Key = tuple[int, int]  # set of processes, ordinal


class FrameLaunch:
    """See launches.Launch, and call_queue.Launch. ordinal: of the call among those of its set, once the owner has been
    told of it."""

    def __init__(self, launches: FrameLaunches, executable: LaunchedExecutable, site: LaunchSite) -> None:
        self.verdict: DistxlaError | None = None
        self.ordinal: int | None = None
        self.program = executable.launched
        self.site = site
        self._launches = launches
        self._executable = executable
        self._is_posted = self._is_skipped = self._is_done = self._is_over = False
        self._has_news = threading.Event()

    def begin(self) -> None:
        """Tell the owner, in the order of all calls."""
        if not self._is_posted:
            self._launches.connection.post(self._send)  # twice where an interrupt comes behind it
            self._is_posted = True

    def _send(self) -> None:
        if self.ordinal is None:
            self._launches.send(self)

    @property
    def key(self) -> _Key:
        assert self.ordinal is not None
        return self.program.set, self.ordinal

    def run(self, rows: NDArray[np.uint64], kept: list[Any]) -> None:
        """Block until the devices of this process are done. rows: offsets of arguments and results, by device.  kept:
        memory that they use. Raises the verdict, and what ends the call otherwise."""
        self.begin()
        connection = self._launches.connection
        connection.flush()
        if self.verdict is not None:
            raise self.verdict
        with ExitStack() as stack:
            try:
                self._executable.load()
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

    def _wait(self, serving: Serving) -> None:
        launches = self._launches
        reason: DistxlaError | None = None
        end = math.inf
        has_told = has_served = False
        while not self._is_over:
            self._has_news.wait(SLICE_S)
            self._has_news.clear()
            if self._is_over:
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
        return self._is_over or launches.connection.failure is not None or launches.stop_reason() is not None

    def skip(self, why: BaseException, *, by_argument: bool = False) -> None:
        """See launches.Launch."""
        if not self._is_skipped:
            self._is_skipped = True
            self.begin()
            self._launches.skip(self, why, by_argument=by_argument)

    def devices_done(self) -> None:
        """The owner has told that the devices are done, and asks for what they have called here."""
        self._is_done = True
        self._has_news.set()

    def end(self, verdict: DistxlaError | None) -> None:
        """The owner has told how it ended."""
        self.verdict = verdict
        self._is_over = True
        self._has_news.set()


class FrameLaunches:
    """The launches of this process. connection: to the owner.

    stop_reason: why the call that this thread runs should end.  refused: told of a launch that will never run, maybe
    while earlier ones run.
    """

    def __init__(
        self,
        connection: OwnersConnection,
        stop_reason: Callable[[], DistxlaError | None],
        refused: Callable[[FrameLaunch, DistxlaError], object],
    ) -> None:
        self.connection = connection
        self.stop_reason = stop_reason
        self._refuse = refused
        self._lock = threading.Lock()  # of the fields below
        self._ordinals: dict[int, int] = {}  # of the next call of each set
        self._turn = 0
        self._unusable: DistxlaError | None = None
        self._active: dict[_Key, FrameLaunch] = {}
        self._refused: dict[_Key, DistxlaError] = {}  # that this process has not called yet
        self._kept: list[Any] = []
        connection.pushed[Over] = self._over
        connection.pushed[Done] = self._done
        connection.pushed[Refused] = self._told_refused
        connection.lost = self._lost

    def of(self, executable: LaunchedExecutable) -> FrameLaunch:
        """See launches.Launches."""
        return FrameLaunch(self, executable, replace(user_site(), program=executable.launched.name))

    def send(self, launch: FrameLaunch) -> None:
        """Tell the owner of a launch; called by the connection, in the order of all calls."""
        program = launch.program
        with self._lock:
            ordinal = self._ordinals.get(program.set, 0)
            key, turn = (program.set, ordinal), self._turn
            self._ordinals[program.set], self._turn, launch.ordinal = ordinal + 1, turn + 1, ordinal
            refused = self._refused.pop(key, None) or self.connection.failure
            if refused is None:
                self._active[key] = launch
        self.connection.send_now(Launch(program.set, program.program, ordinal, turn), [launch.site.pack()])
        if refused is not None:
            launch.end(refused)
            self._refuse(launch, refused)

    def tell(self, launch: FrameLaunch, kind: int, why: BaseException) -> None:
        """Tell the owner what is the matter with a launch."""
        frame, payload = Trouble(*launch.key, kind), pack_json({"error": pack_error(why)})
        self.connection.tell(frame, [payload])

    def skip(self, launch: FrameLaunch, why: BaseException, *, by_argument: bool) -> None:
        """See FrameLaunch.skip."""
        payload = pack_json({"error": pack_error(why), "by_argument": by_argument})

        def send() -> None:
            with self._lock:
                self._active.pop(launch.key, None)
            self.connection.send_now(Trouble(*launch.key, SKIPPED), [payload])

        self.connection.post(send)
        self.connection.flush()

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
        with self._lock:
            launch = self._active.pop((frame.set, frame.ordinal), None)
        told = unpack_json(payload) if payload else None
        verdict = None if told is None else unpack_error(told)
        if told is not None and told.get("unusable") is True:
            self._unusable = verdict
        if launch is not None:
            launch.end(verdict)
            if verdict is not None:
                self._refuse(launch, verdict)

    def _told_refused(self, frame: Frame, payload: bytearray) -> None:
        assert isinstance(frame, Refused)
        key, error = (frame.set, frame.ordinal), unpack_error(unpack_json(payload))
        with self._lock:
            launch = self._active.pop(key, None)
            if launch is None and frame.ordinal >= self._ordinals.get(frame.set, 0):
                self._refused[key] = error
        if launch is not None:
            launch.end(error)
            self._refuse(launch, error)

    def _lost(self, failure: DistxlaError) -> None:
        with self._lock:
            active, self._active = list(self._active.values()), {}
        for launch in active:
            launch.end(failure)
            self._refuse(launch, failure)


__all__ = ["FrameLaunch", "FrameLaunches"]
