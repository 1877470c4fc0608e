"""Processes that share devices in one process: their slices, logs and boards are real, and native code is; the test
plays devices and owner."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import distxla as dx
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.launch_board import BOARD, LOG
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.launch_views import BoardView, LogView
from distxla.jax.pjrt.native_functions import native_functions
from distxla.jax.pjrt.table import STATES
from distxla.jax.processes.board_calls import BoardCalls, Key, Outcome, SliceFacts
from distxla.jax.processes.launches import AttachedProgram
from distxla.jax.processes.made_calls import MadeCall
from distxla.targets.registry import wake_all

WIDTH = 2  # offsets of a row of the call area
NUMBER = 5  # of a program on its devices


class Program:
    """A loaded one on one device of each member."""

    def __init__(self, shared: Shared, process: int, program: AttachedProgram) -> None:
        self.launched, self.program = program, self
        self.name, self.is_native, self.number = program.name, True, NUMBER
        self.devices = (process,)
        self.areas = (shared.area(program.program) + 8 * WIDTH * process,)
        self.board = shared.board(program.set) if len(program.members) > 1 else 0


class Shared:
    """The memory of so many processes with a device each."""

    def __init__(self, processes: int) -> None:
        self.control = ControlBlock.create(processes)
        self.headers = tuple(self.control.carve(control_words.HEADER_BYTES) for _ in range(processes))
        self.logs = tuple(self.control.carve(LOG.size) for _ in range(processes))
        self._boards: dict[int, int] = {}
        self._areas: dict[int, int] = {}
        self.processes = [Process(self, k) for k in range(processes)]

    def board(self, number: int) -> int:
        if number not in self._boards:
            self._boards[number] = self.control.carve(BOARD.size)
        return self._boards[number]

    def area(self, program: int) -> int:
        if program not in self._areas:
            self._areas[program] = self.control.carve(8 * WIDTH * len(self.headers))
        return self._areas[program]

    def board_view(self, number: int, members: int) -> BoardView:
        return BoardView(self.control, self.board(number), members)

    def log_view(self, process: int) -> LogView:
        return LogView(self.control, self.logs[process])

    def load(self, process: int, word: Any) -> int:
        return self.control.load(word, self.headers[process])

    def store(self, process: int, word: Any, value: int) -> None:
        self.control.store(word, value, self.headers[process])

    def command(self, device: int) -> tuple[int, int, int]:
        """Kind, program and sequence of a device's command."""
        words = control_words.R_COMMAND_KIND, control_words.R_COMMAND_PROGRAM, control_words.R_COMMAND_SEQUENCE
        kind, program, sequence = (self.control.record(device, word) for word in words)
        return kind, program, sequence

    def has_started(self, process: int) -> bool:
        """Whether the process's device has a command that H_COMMAND has published."""
        kind, _, sequence = self.command(process)
        return kind == control_words.CommandKind.RUN and self.load(process, control_words.H_COMMAND) == sequence

    def finish(self, process: int, *, status: int = 0) -> None:
        """The process's device ends its call. status: not 0 where it fails."""
        assert self.has_started(process)
        if status:
            self.store(process, control_words.H_ABORT, status)
        place = control_words.record_offset(process)
        self.control.store(control_words.R_COMMAND_KIND, control_words.CommandKind.NONE, place)
        done = self.load(process, control_words.H_DONE) + 1
        self.control.configure(self.headers[process] + control_words.H_DONE, done)
        wake_all(self.control.address + self.headers[process] + control_words.H_DONE)

    def close(self) -> None:
        self.control.close()


class Process:
    """One of them. told: what it tells its owner: (key, kind).  outcomes: what the owner tells it of native calls."""

    lost: dx.DistxlaError | None = None

    def __init__(self, shared: Shared, process: int) -> None:
        self.process, self.shared = process, shared
        self.told: list[tuple[Key, int]] = []
        self.outcomes: dict[Key, Outcome] = {}
        self.undecided: set[Key] = set()
        self.kept: list[Any] = []
        self.stop: dx.DistxlaError | None = None
        self.has_told = threading.Semaphore(0)
        self._news = threading.Event()
        self.gate = STATES["Gate"](control=shared.control.address + shared.headers[process])
        self.calls = BoardCalls(shared.control, SliceFacts(process, shared.headers, shared.logs), self)
        self.calls.use(self._address, native_functions(), lambda thing: None)

    @property
    def _address(self) -> int:
        return ctypes.addressof(self.gate)

    # --- see board_calls.Owner

    @property
    def is_undecided(self) -> bool:
        return bool(self.undecided)

    def stop_reason(self) -> dx.DistxlaError | None:
        return self.stop

    def complain(self, key: Key, kind: int, why: BaseException | None) -> None:
        self.told.append((key, kind))
        self.has_told.release()

    def outcome(self, key: Key) -> Outcome | None:
        return self.outcomes.pop(key, None)

    def await_news(self, seconds: float) -> None:
        self._news.wait(seconds)
        self._news.clear()

    def leave_undecided(self, key: Key) -> None:
        self.undecided.add(key)

    def decided(self, key: Key) -> None:
        self.calls.let_go(key)
        self.undecided.discard(key)

    def keep(self, things: list[Any]) -> None:
        self.kept += things

    def keep_after_failure(self, things: list[Any]) -> None: ...

    def settled(self) -> None:
        self.kept.clear()

    # --- calls

    def tell(self, key: Key, error: dx.DistxlaError | None, *, is_refused: bool = False) -> None:
        """As the owner."""
        self.outcomes[key] = Outcome(error, is_refused)
        self._news.set()

    def made(self, program: AttachedProgram, line: str = "") -> MadeCall:
        found = self.calls.made(program, line, by_frames=False)
        self.calls.count(found)
        return found

    def begin(self, program: AttachedProgram, line: str = "") -> Running:
        """Run a call as the queue does, in a thread."""
        return Running(self, program, self.made(program, line))


class Running:
    """A call in a thread. error: once it has ended."""

    def __init__(self, process: Process, program: AttachedProgram, made: MadeCall) -> None:
        self.key = program.set, int(made.ordinal)
        self.error: BaseException | None = None
        self.rows = np.array([[10 * made.turn + 1, 10 * made.turn + 2]], np.uint64)
        executable = Program(process.shared, process.process, program)

        def run() -> None:
            try:
                process.calls.run(executable, made, self.rows, lambda: process.outcome(self.key), [self.rows])
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until it is over; raises its error."""
        self._thread.join(60)
        assert self.is_over
        if self.error is not None:
            raise self.error


def await_true(condition: Callable[[], bool]) -> None:
    """Block until something is so."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


__all__ = ["NUMBER", "Process", "Program", "Running", "Shared", "await_true"]
