"""Calls that this process issues itself, native ones and those of the call queue: each process commands its own
devices, and the last one that arrives starts the call on those of all (collectives/protocols/launch_board.py).

The owner of the devices is asked about a call that lasts, fails or can't start. It may take it over: it holds the
slices of its processes, in which nothing is issued then, and tells how it has ended. Or it refuses a call that has not
started, which then never does.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.call_loops import CALL_AGAIN, CALL_DONE
from distxla.collectives.protocols.launch_board import (
    BY_FRAMES,
    L_NEWEST,
    MOST_MEMBERS,
    MOST_PROGRAMS,
    Arrival,
    LaunchSet,
)
from distxla.collectives.protocols.layout import packed
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import ClusterError, DistxlaError, InternalError
from distxla.jax.processes.connection_to_owner import SLICE_S
from distxla.jax.processes.launches import AttachedProgram
from distxla.jax.processes.made_calls import HELD, MadeCall
from distxla.jax.processes.messages import ABORTED, DISAGREES, INTERRUPTED, SLOW
from distxla.lazy_dataclass import dataclass
from distxla.runtime.arrays.device_cluster import DirectCall, DirectPlace
from distxla.runtime.arrays.executable import Executable

INTERRUPT_S: Final = 5.0  # for the owner to end a call that was interrupted here
MASK: Final = 0xFFFFFFFF
_SLICE_NS: Final = round(SLICE_S * 1e9)
TOLD_AGAIN: Final = 20  # moments, after which the owner is told once more of a call that has not started
_COMMAND: Final = packed(
    control_words.R_COMMAND_KIND,
    control_words.R_COMMAND_PROGRAM,
    control_words.R_COMMAND_SEQUENCE,
    control_words.R_COMMAND_REPEAT,
)
Key = tuple[int, int]  # number of a set of processes, and ordinal of a call of it


class LaunchFunctions(Protocol):
    """Native functions (pjrt/native_launches.py, and those of the launch board as launch_board.py has them)."""

    def count(self, gate: int, made: int, /) -> None:
        """Give a MadeCall its place."""

    def issue(self, launch: int, turn: int, ordinal: int, sequence: int, target: int, /) -> int:
        """Note that the call is issued; not 0 where the slice is held."""

    def arrive(self, launch: int, turn: int, ordinal: int, program: int, /) -> int:
        """An Arrival."""


class Functions(Protocol):
    """Native functions of pjrt/native_functions.py."""

    launches: LaunchFunctions

    def gate_await(self, control: int, target: int, nanoseconds: int, /) -> int:
        """Wait for the end of a call: CALL_..."""

    def gate_bar(self, gate: int, is_on: int, /) -> None:
        """Whether native calls are barred."""


class Owner(Protocol):
    """What is told to the owner of the devices, and what it tells."""

    @property
    def lost(self) -> DistxlaError | None:
        """Why no call can run any more."""

    @property
    def is_undecided(self) -> bool:
        """Whether this process waits no more for a call of which the owner has not told yet what becomes of it: until
        then it must issue nothing."""

    def stop_reason(self) -> DistxlaError | None:
        """Why the call that this thread runs should end."""

    def complain(self, key: Key, kind: int, why: BaseException | None) -> None:
        """Tell the owner what is the matter with a call. kind: of Trouble."""

    def outcome(self, key: Key) -> Outcome | None:
        """How a native call has ended, as the owner has told; then forgotten."""

    def await_news(self, seconds: float) -> None:
        """Block until the owner has told something, so long at most."""

    def leave_undecided(self, key: Key) -> None:
        """This process waits for this call no more."""

    def decided(self, key: Key) -> object:
        """It is known what becomes of a call."""

    def keep(self, things: list[Any]) -> None:
        """Hold memory of a call that has failed, in which devices may still compute."""

    def keep_after_failure(self, things: list[Any]) -> None:
        """As `keep`, where a call has failed and none has succeeded since."""

    def settled(self) -> None:
        """A call has succeeded, before which the owner has waited for devices that were late."""


@dataclass(frozen=True)
class Outcome:
    """What the owner has told of a call. error: None where it has gone well.  is_refused: it has never started."""

    error: DistxlaError | None
    is_refused: bool = False


@dataclass(frozen=True)
class SliceFacts:
    """Where things of processes lie in the control block, by process: headers of slices, and logs. process: this."""

    process: int
    headers: tuple[int, ...]
    logs: tuple[int, ...]


class _Set:
    """A set of processes as native code knows it."""

    def __init__(self, control: ControlBlock, facts: SliceFacts, program: AttachedProgram) -> None:
        members, base = program.members, control.address
        count = len(members)
        self.headers = (ctypes.c_uint64 * count)(*(base + facts.headers[member] for member in members))
        self.logs = (ctypes.c_uint64 * count)(*(base + facts.logs[member] for member in members))
        self.commands = (ctypes.c_uint32 * count)()
        self.record: Any = LaunchSet(
            members=count,
            set=program.set,
            position=members.index(facts.process),
            headers=ctypes.addressof(self.headers),
            logs=ctypes.addressof(self.logs),
            commands=ctypes.addressof(self.commands),
        )
        self.address = ctypes.addressof(self.record)


class _Part:
    """This process's part of a call, which it issues. sequence, target, arrival: once it is issued."""

    def __init__(self, key: Key, launch: _Set, place: DirectPlace, turn: int) -> None:
        self.key, self.launch, self.place, self.turn = key, launch, place, turn
        self.sequence = self.target = 0
        self.arrival: int = HELD

    @property
    def is_unknown(self) -> bool:
        """Whether it concerns this process alone, and was not issued."""
        return self.arrival == HELD and self.launch.record.members == 1


class BoardCalls:
    """See device_cluster.DirectCluster. facts: where the parts of processes lie.

    Programs that call functions, are checked or have streams are the owner's to issue; `issues` says of which that is
    not so.
    """

    def __init__(self, block: ControlBlock, facts: SliceFacts, owner: Owner) -> None:
        self._block, self._facts, self._owner = block, facts, owner
        self._offset = facts.headers[facts.process]  # of the header of this process's slice
        self._log = facts.logs[facts.process]
        self.control = block.address + self._offset
        self._sets: dict[int, _Set] = {}
        self._by_address: dict[int, _Set] = {}
        self._lock = threading.Lock()  # of making sets
        self._functions: Functions | None = None
        self._gate = 0
        self._hold: Callable[[object], None] = lambda thing: None
        self._is_barred = False
        self._left: dict[Key, _Part] = {}  # issued parts of calls that nobody waits for, until they are decided

    # --- for native calls

    def use(self, gate: int, functions: Functions, hold: Callable[[object], None]) -> None:
        """See DirectCluster."""
        self._gate, self._functions, self._hold = gate, functions, hold
        functions.gate_bar(gate, int(self._is_barred))

    def place(self, executable: Executable) -> DirectPlace | None:
        """See DirectCluster."""
        launched: Any = executable  # an AttachedExecutable
        if executable.number is None or not self.issues(launched):
            return None
        return self._place(launched)

    def end(self, call: DirectCall, kept: Sequence[object]) -> None:
        """See DirectCluster."""
        launch = self._by_address[call.place.launch]
        key = launch.record.set, call.ordinal
        part = _Part(key, launch, call.place, call.turn)
        part.sequence, part.target, part.arrival = call.sequence, call.target, call.arrival
        self._finish(part, lambda: self._owner.outcome(key), kept)

    def keep(self, kept: Sequence[object]) -> None:
        """See DirectCluster."""
        self._owner.keep_after_failure(list(kept))

    # --- for calls of the queue

    def issues(self, executable: Any) -> bool:
        """Whether this process issues its part of the calls of a program itself."""
        program: AttachedProgram = executable.launched
        return bool(executable.is_native and program.program < MOST_PROGRAMS and len(program.members) < MOST_MEMBERS)

    def made(self, program: AttachedProgram, line: str, *, by_frames: bool) -> MadeCall:
        """A call that is not counted yet. line: the user's, "" where it is not known.  by_frames: whether the owner is
        told of it by a frame."""
        made = MadeCall(program=program.program, by_frames=BY_FRAMES if by_frames else 0)
        made.line = line.encode(errors="replace")
        made.launch = self._set(program).address
        made.site, made.site_bytes = ctypes.cast(ctypes.c_char_p(made.line), ctypes.c_void_p).value, len(made.line)
        return made

    def count(self, made: MadeCall) -> None:
        """Give the call its place among those of this process, unless it has one. No signal comes in between."""
        self._native.launches.count(self._gate, ctypes.addressof(made))

    @property
    def turn(self) -> int:
        """Of the next call: all that have a smaller one are counted."""
        return self._block.load(L_NEWEST, self._log)

    def next_ordinal(self, number: int) -> int:
        """Of the next call of this set that this process makes."""
        found = self._sets.get(number)
        return 0 if found is None else int(found.record.ordinal)

    def bar(self, is_on: bool) -> None:
        """Whether no native call is issued."""
        self._is_barred = is_on
        if self._functions is not None:
            self._functions.gate_bar(self._gate, int(is_on))

    def when_idle(self, do: Callable[[], object]) -> None:
        """Do something once the native call that is in flight is over, at once where none is. In any thread."""
        self._hold(_Last(do))

    def run(
        self,
        executable: Any,
        made: MadeCall,
        rows: NDArray[np.uint64],
        outcome: Callable[[], Outcome | None],
        kept: Sequence[object],
    ) -> None:
        """Run a call that is the first of the queue, whose program is loaded; blocks. rows: offsets of arguments and
        results, by device.  outcome: what the owner has told of it.  kept: memory that it uses. Raises what the owner
        tells."""
        place = self._place(executable)
        launch = self._by_address[place.launch]
        part = _Part((launch.record.set, made.ordinal), launch, place, made.turn)

        def write() -> None:
            for address, row in zip(place.rows, rows, strict=True):
                ctypes.memmove(address, row.ctypes.data, row.nbytes)

        self._finish(part, outcome, kept, write)

    # --- a part of a call

    def let_go(self, key: Key) -> None:
        """It is known what becomes of a call: its part here, which nobody waits for, is taken back unless it has
        started."""
        part = self._left.pop(key, None)
        if part is not None:
            self._withdraw(part)

    def _finish(
        self,
        part: _Part,
        outcome: Callable[[], Outcome | None],
        kept: Sequence[object],
        write: Callable[[], None] = lambda: None,
    ) -> None:
        """Block until this process's part is over, which is issued first if need be. write: the call area, before the
        call may start."""
        waiting = _Waiting(self._owner, part, outcome)
        try:
            while not (waiting.has_ended() or self._is_over(part, waiting, write)):
                pass
        except BaseException:
            if waiting.outcome is None:
                self._left[part.key] = part
                self._owner.leave_undecided(part.key)
                if outcome() is not None:  # it was told a moment ago
                    self._owner.decided(part.key)
            elif waiting.outcome.is_refused:
                self._withdraw(part)
                self._await_started(part)
            self._owner.keep(list(kept))
            raise
        self._owner.settled()

    def _is_over(self, part: _Part, waiting: _Waiting, write: Callable[[], None]) -> bool:
        """Take a step: issue the part, or wait for its end for a moment."""
        if part.arrival == HELD:
            if self._is_left_aborted():
                waiting.complain(ABORTED)
            elif waiting.is_wanted and self._is_free():
                write()
                self._issue(part)
            if part.arrival == HELD:
                self._owner.await_news(SLICE_S / 10)
            return False
        if part.arrival > Arrival.LAST:
            if part.arrival == Arrival.DIFFERS:
                waiting.complain(DISAGREES)
            self._owner.await_news(SLICE_S)
            return False
        found = self._native.gate_await(self.control, part.target, _SLICE_NS)
        if found == CALL_DONE and self._is_fine(part):
            return True
        if found == CALL_AGAIN:
            waiting.complain_again(has_started=self._has_started(part))
            return False
        if self._header(control_words.H_ABORT):
            waiting.complain(ABORTED)
        self._owner.await_news(SLICE_S)
        return False

    def _is_left_aborted(self) -> bool:
        """Whether nothing can be issued any more, as it seems: while the owner ends a call it holds the slice."""
        words = control_words.H_ABORT, control_words.H_HOLD, control_words.H_ABORT
        return [bool(self._header(word)) for word in words] == [True, False, True]

    def _is_free(self) -> bool:
        """Whether this process may issue something now."""
        words = control_words.H_ABORT, control_words.H_HOLD
        return not (self._owner.is_undecided or any(self._header(word) for word in words))

    def _issue(self, part: _Part) -> None:
        """Issue the part and arrive, unless the owner takes the slice meanwhile."""
        place, native = part.place, self._native
        ordinal = part.key[1]
        sequence = (self._header(control_words.H_COMMAND) + 1) & MASK
        target = (self._header(control_words.H_DONE) + len(place.records)) & MASK
        if native.launches.issue(part.launch.address, part.turn, ordinal, sequence, target):
            return
        if self._header(control_words.H_FAILED) == sequence:  # of a call 2**32 calls ago
            self._block.store(control_words.H_FAILED, (sequence - 1) & MASK, self._offset)
        for record in place.records:
            self._command(record, control_words.CommandKind.RUN, place.number, sequence)
        self._block.store(control_words.H_DONE_TARGET, target, self._offset)
        part.sequence, part.target = sequence, target
        part.arrival = native.launches.arrive(part.launch.address, part.turn, ordinal, place.program)

    def _is_fine(self, part: _Part) -> bool:
        """Whether the part, whose devices are done, has gone well, and the owner has not taken it. In this order:
        native_gate.py says why."""
        if self._header(control_words.H_ABORT) or self._header(control_words.H_HOLD):
            return False
        return self._header(control_words.H_FAILED) != part.sequence

    def _has_started(self, part: _Part) -> bool:
        return self._header(control_words.H_COMMAND) == part.sequence

    def _withdraw(self, part: _Part) -> None:
        """Take back the commands of a call that never starts."""
        newest = self._header(control_words.H_COMMAND)
        if part.arrival == HELD or (newest + 1) & MASK != part.sequence:
            return
        for record in part.place.records:
            self._command(record, control_words.CommandKind.NONE, part.place.number, (newest - 1) & MASK)

    def _await_started(self, part: _Part) -> None:
        """A call that is refused may have started, where the owner did not know that all had reached it. Its devices
        have to be back before anything else is issued."""
        while part.arrival != HELD and self._has_started(part):
            if self._native.gate_await(self.control, part.target, _SLICE_NS) != CALL_AGAIN:
                return
            if self._owner.lost is not None or self._owner.stop_reason() is not None:
                return

    def _command(self, record: int, kind: control_words.CommandKind, number: int, sequence: int) -> None:
        """Write a device's command. record: its address."""
        at = record - self._block.address
        self._block.row(_COMMAND, control_words.R_COMMAND_KIND, at)(kind, number, sequence, 1)

    def _header(self, word: Any) -> int:
        return self._block.load(word, self._offset)

    @property
    def _native(self) -> Functions:
        if self._functions is None:
            raise InternalError("a call before the devices serve")
        return self._functions

    # --- sets and places

    def _set(self, program: AttachedProgram) -> _Set:
        with self._lock:
            found = self._sets.get(program.set)
            if found is None:
                found = self._sets[program.set] = _Set(self._block, self._facts, program)
                self._by_address[found.address] = found
        return found

    def _place(self, executable: Any) -> DirectPlace:
        launch, base = self._set(executable.launched), self._block.address
        if len(executable.launched.members) > 1:
            if not executable.board:
                raise ClusterError(f"{executable.program.name}: the owner of the devices has told no board for it")
            launch.record.board = base + executable.board
        records = tuple(base + control_words.record_offset(device) for device in executable.devices)
        rows = tuple(base + offset for offset in executable.areas)
        return DirectPlace(records, executable.number, rows, self._block, launch.address, executable.launched.program)


class _Last:
    """Does something when nobody holds it any more."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do = do

    def __del__(self) -> None:
        self._do()


class _Waiting:
    """What is told of a call for which this process waits, in both directions. outcome: what the owner has told."""

    def __init__(self, owner: Owner, part: _Part, outcome: Callable[[], Outcome | None]) -> None:
        self._owner, self._part, self._find = owner, part, outcome
        self.outcome: Outcome | None = None
        self._said: set[int] = set()
        self._has_seen_start = self._was_slow = False
        self._moments = 0
        self._reason: DistxlaError | None = None
        self._end = math.inf

    def complain(self, kind: int, why: BaseException | None = None) -> None:
        """Tell the owner, once."""
        if kind not in self._said:
            self._said.add(kind)
            self._owner.complain(self._part.key, kind, why)

    def complain_again(self, *, has_started: bool) -> None:
        """The call was not over after another moment: tell the owner, and again once it has run for as long. While it
        has not started, again from time to time: the process that was to start it may have died amid that."""
        self._moments += 1
        if SLOW not in self._said:
            self._was_slow = has_started
            self.complain(SLOW)
        elif self._has_seen_start and not self._was_slow:
            self._was_slow = True
            self._owner.complain(self._part.key, SLOW, None)
        elif not has_started and self._moments % TOLD_AGAIN == 0:
            self._owner.complain(self._part.key, SLOW, None)
        self._has_seen_start = has_started

    @property
    def is_wanted(self) -> bool:
        """Whether nothing was told that ends it."""
        return self._reason is None

    def has_ended(self) -> bool:
        """Whether the owner has told that the call has gone well. Raises what it has told otherwise, and why this
        process waits no longer."""
        if (found := self._find()) is not None:
            self.outcome = found
            if found.error is not None:
                raise self._reason or found.error
            return True
        if (lost := self._owner.lost) is not None:
            raise lost
        if self._reason is not None and clock.now() > self._end:
            raise self._reason
        if self._reason is None and (reason := self._owner.stop_reason()) is not None:
            self._reason, self._end = reason, clock.now() + INTERRUPT_S
            if self._part.is_unknown:
                self.outcome = Outcome(reason, is_refused=True)
                raise reason
            self.complain(INTERRUPTED, reason)
        return False


__all__ = ["BoardCalls", "Functions", "Key", "LaunchFunctions", "Outcome", "Owner", "SliceFacts"]
