"""Emitted code in a simulated run: its system calls and clock go to the scheduler, and it may be held up at each
access to a shared word.

Nothing of the emission is changed. The text of an LLVM module is rewritten just before it is compiled: system calls and
`pause` become calls of an import, the time-stamp counter a load of the virtual clock, and before every atomic access
stands `distxla_step`, which counts `scheduler.COUNTDOWN` down.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distxla.collectives.transports.shared_memory import emit_call_loops as call_loops
from distxla.collectives.transports.shared_memory import wait_and_wake as futex
from distxla.compiler import compile
from distxla.targets.common_functions import Separated
from distxla.targets.native import finish
from distxla.targets.native import load as image
from distxla.targets.native.code import NativeCode
from distxla.targets.native.system_calls import FUTEX_WAIT, FUTEX_WAKE
from distxla.targets.native.traits import own_traits
from tests.simulation.scheduler import CLOCK, COUNTDOWN, Scheduler, Task, TaskExit

SYS_FUTEX, SYS_SCHED_YIELD = own_traits().futex, own_traits().sched_yield
SYS_CLOCK_GETTIME = own_traits().clock_gettime
SPINS = 5  # of a loop that looks at a word, each of which lets others run
MOST_CALLS_AT_THE_END = 10_000  # of a task that is told to end

_CALL = re.compile(r'call i64 asm sideeffect "syscall", "[^"]*"\s*\(([^)]*)\)')
_PAUSE = re.compile(r'call void asm sideeffect "pause", ""\s*\(\)')
_CYCLES = re.compile(r'call i64 @"?llvm\.readcyclecounter"?\(\)')
_ATOMIC = re.compile(r"^(\s+)(.*\b(?:load atomic|store atomic|atomicrmw|cmpxchg)\b.*)$", re.MULTILINE)
_ARGUMENTS = 7
_SUPPORT = """
@"distxla_countdown" = external global i32
@"distxla_clock" = external global i64
declare void @"distxla_switch"()
declare i64 @"distxla_system_call"(i64, i64, i64, i64, i64, i64, i64)
define internal void @"distxla_step"() noinline {
  %left = load volatile i32, ptr @"distxla_countdown"
  %less = sub i32 %left, 1
  store volatile i32 %less, ptr @"distxla_countdown"
  %over = icmp sle i32 %less, 0
  br i1 %over, label %switch, label %done
switch:
  call void @"distxla_switch"()
  br label %done
done:
  ret void
}
"""


def rewritten(text: str) -> str:
    """The text of an LLVM module as it runs in a simulation."""

    def system_call(found: re.Match[str]) -> str:
        given = [part.strip() for part in found[1].split(",")]
        given += ["i64 0"] * (_ARGUMENTS - len(given))
        return f'call i64 @"distxla_system_call"({", ".join(given)})'

    text = _CALL.sub(system_call, text)
    text = _PAUSE.sub(f'call i64 @"distxla_system_call"(i64 {SYS_SCHED_YIELD}{", i64 0" * (_ARGUMENTS - 1)})', text)
    text = _CYCLES.sub('load volatile i64, ptr @"distxla_clock"', text)
    assert "syscall" not in text, "a system call that the simulation does not see"
    return _ATOMIC.sub(r'\1call void @"distxla_step"()' + "\n" + r"\1\2", text) + _SUPPORT


@contextmanager
def compiling() -> Iterator[None]:
    """Programs that are compiled within are for simulated runs."""
    real, apart, spins = finish.parse, compile.separated, (futex.WAIT_SPINS, call_loops.CALL_SPINS)

    def parse(module: Any) -> Any:
        machine = finish.target_machine()
        if not isinstance(module, str):
            module.triple, module.data_layout = machine.triple, str(machine.target_data)
        return real(rewritten(str(module)))

    finish.parse, NativeCode.parse = parse, staticmethod(parse)
    # whole: objects of common functions are kept for programs that are not simulated, which have the same texts
    compile.separated = lambda module: Separated(str(module), ())
    futex.WAIT_SPINS = call_loops.CALL_SPINS = SPINS
    try:
        yield
    finally:
        finish.parse, NativeCode.parse, compile.separated = real, staticmethod(real), apart
        futex.WAIT_SPINS, call_loops.CALL_SPINS = spins


class Futexes:
    """Words of shared memory that tasks sleep on. A word is known by its file and offset, wherever it is mapped."""

    def __init__(self, run: Scheduler) -> None:
        self.run = run
        self._begins: list[int] = []
        self._mapped: list[tuple[int, int, int]] = []  # begin, size, file
        self._queues: dict[tuple[int, int], list[Task]] = {}

    def mapped(self, begin: int, size: int, file: int) -> None:
        at = bisect.bisect(self._begins, begin)
        self._begins.insert(at, begin)
        self._mapped.insert(at, (begin, size, file))

    def unmapped(self, begin: int, size: int) -> None:
        first, last = bisect.bisect_left(self._begins, begin), bisect.bisect_left(self._begins, begin + size)
        del self._begins[first:last], self._mapped[first:last]

    def _key(self, address: int) -> tuple[int, int]:
        begin, size, file = self._mapped[bisect.bisect(self._begins, address) - 1]
        assert begin <= address < begin + size, "a futex outside of shared memory"
        return file, address - begin

    def wait(self, address: int, value: int, nanoseconds: int | None) -> int:
        """Zero or a negative error number, as the kernel answers; now and then 0 without a reason."""
        run, key = self.run, self._key(address)
        if ctypes.c_uint32.from_address(address).value != value & 0xFFFFFFFF:
            run.step()
            return -errno.EAGAIN
        spurious = run.policy.spurious
        if spurious and run.random.random() < spurious:
            run.yield_now()
            return 0
        queue = self._queues.setdefault(key, [])
        woken = run.block((queue,), nanoseconds, "sleeps on a word")
        if run.current.interrupted:
            return -errno.EINTR
        return 0 if woken else -errno.ETIMEDOUT

    def wake(self, address: int, count: int) -> int:
        queue = self._queues.get(self._key(address))
        woken = self.run.wake(queue, count) if queue else 0
        self.run.step()
        return woken


class Native:
    """The system calls of emitted code, and of the runtime's own libc, in one run."""

    run: Scheduler | None = None
    futexes: Futexes
    _calls_at_the_end = 0

    def system_call(self, number: int, a: int, b: int, c: int, d: int) -> int:
        assert self.run is not None
        if number == SYS_FUTEX:
            if b == FUTEX_WAIT:
                nanoseconds = None
                if d:
                    limit = (ctypes.c_int64 * 2).from_address(d)
                    nanoseconds = limit[0] * 1_000_000_000 + limit[1]
                return self.futexes.wait(a, c, nanoseconds)
            if b == FUTEX_WAKE:
                return self.futexes.wake(a, c)
        elif number == SYS_SCHED_YIELD:
            self.run.yield_now()
            return 0
        elif number == SYS_CLOCK_GETTIME:
            (ctypes.c_int64 * 2).from_address(b)[:] = divmod(self.run.now, 1_000_000_000)
            return 0
        raise NotImplementedError(f"system call {number}")

    def libc(self, number: int, *arguments: Any) -> int:
        """For Python: `syscall` of libc, whose arguments may be ctypes objects or None."""
        values = [getattr(argument, "value", argument) or 0 for argument in arguments[:4]]
        return self.system_call(number, *values)

    def guarded(self, action: Callable[[], int]) -> int:
        """No exception goes through emitted code; a task that must end returns from every wait."""
        try:
            if self.run is None or self.run.is_ending:
                return self._ending()
            task = self.run.current
            task.is_native = True
            try:
                return action()
            finally:
                task.is_native = False
        except TaskExit:
            return 0
        except BaseException as error:
            if self.run is not None:
                self.run.failures.append(f"in emitted code: {type(error).__name__}: {error}")
            return 0

    def _ending(self) -> int:
        COUNTDOWN.value = 1 << 30
        self._calls_at_the_end += 1
        if self._calls_at_the_end > MOST_CALLS_AT_THE_END and self.run is not None:
            self._calls_at_the_end = 0
            self.run.abandon()
        return 0


NATIVE = Native()


def _switch() -> None:
    NATIVE.guarded(lambda: NATIVE.run.preempt() or 0)  # type: ignore[union-attr, func-returns-value]


def _system_call(number: int, a: int, b: int, c: int, d: int, e: int, f: int) -> int:
    return NATIVE.guarded(lambda: NATIVE.system_call(number, a, b, c, d))


_SWITCH = ctypes.CFUNCTYPE(None)(_switch)
_SYSTEM_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * _ARGUMENTS)(_system_call)
_ADDRESSES = {
    "distxla_countdown": ctypes.addressof(COUNTDOWN),
    "distxla_clock": ctypes.addressof(CLOCK),
    "distxla_switch": ctypes.cast(_SWITCH, ctypes.c_void_p).value or 0,
    "distxla_system_call": ctypes.cast(_SYSTEM_CALL, ctypes.c_void_p).value or 0,
}
_resolve_import = image.resolve_import


def resolve(name: str) -> int:
    """image.resolve_import, with the imports that `rewritten` adds."""
    return _ADDRESSES.get(name) or _resolve_import(name)


def file_of(descriptor: int) -> int:
    """The identity of a file: its inode."""
    return os.fstat(descriptor).st_ino
