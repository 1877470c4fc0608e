"""Stand-ins for `os`, `select` and `signal`: process ids, their descriptors, ends of processes. The rest is real."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from tests.simulation.scheduler import Process, Scheduler, Task

FIRST_DESCRIPTOR = 1 << 20  # far above the real ones
_PROC = re.compile(r"/proc/(\d+)/fd/(\d+)")


class Descriptor:
    """A simulated descriptor of a process: of a process, readable once that has ended, or of a counter."""

    def __init__(self, process: Process) -> None:
        self.process, self.is_readable = process, False
        self.waiters: list[Task] = []


class Machine:
    """The kernel of a run. cores: how many each process may use.  notice_ns: until an end is seen, at most."""

    def __init__(self, run: Scheduler, cores: int, notice_ns: int) -> None:
        self.run, self._cores, self._notice_ns = run, cores, notice_ns
        self._descriptors: dict[int, Descriptor] = {}
        self._watched: dict[int, Process] = {}
        self._numbers = FIRST_DESCRIPTOR
        self.files: set[int] = set()  # real descriptors that the run has open
        self.os = _Os(self)
        self.select = SimpleNamespace(
            poll=lambda: Poll(self),
            select=self._select,
            POLLIN=select.POLLIN,
            POLLHUP=select.POLLHUP,
            POLLERR=select.POLLERR,
        )
        self.signal = _Signal(self)

    # --- processes

    def living(self, pid: int) -> Process:
        found = next((p for p in self.run.processes if p.pid == pid and p.is_alive), None)
        if found is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return found

    def is_stopped(self, pid: int) -> bool:
        return any(process.pid == pid and process.is_stopped for process in self.run.processes)

    def open_process(self, pid: int) -> int:
        process, descriptor = self.living(pid), Descriptor(self.run.current.process)
        number = self._new(descriptor)
        self._watched[number] = process

        def see() -> None:
            descriptor.is_readable = True
            self.run.wake(descriptor.waiters)

        process.on_end.append(lambda _: self.run.after(int(self.run.random.random() * self._notice_ns), see) and None)
        return number

    def signal_process(self, number: int, which: int) -> None:
        process = self._watched[number]
        if not process.is_alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if which == signal.SIGKILL:
            self.run.kill(process)

    # --- descriptors

    def _new(self, descriptor: Descriptor) -> int:
        self._numbers += 1
        self._descriptors[self._numbers] = descriptor
        return self._numbers

    def open_counter(self) -> int:
        return self._new(Descriptor(self.run.current.process))

    def count(self, number: int) -> None:
        descriptor = self.descriptor(number)
        descriptor.is_readable = True
        self.run.wake(descriptor.waiters)

    def descriptor(self, number: int) -> Descriptor:
        found = self._descriptors.get(number)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def close(self, number: int) -> None:
        if number >= FIRST_DESCRIPTOR:
            self.descriptor(number)
            del self._descriptors[number]
            self._watched.pop(number, None)
        else:
            os.close(number)
            self.files.discard(number)

    def open_descriptors(self) -> int:
        """How many the living processes have."""
        return sum(descriptor.process.is_alive for descriptor in self._descriptors.values())

    def wait(self, numbers: Iterable[int], seconds: float | None) -> list[int]:
        """The readable ones, once there are any."""
        run, numbers = self.run, list(numbers)
        run.step()
        end = None if seconds is None else run.now + int(seconds * 1e9)
        while True:
            found = [n for n in numbers if n in self._descriptors and self._descriptors[n].is_readable]
            if found or (end is not None and run.now >= end):
                return found
            queues = [self.descriptor(number).waiters for number in numbers]
            run.block(queues, None if end is None else end - run.now, "polls")

    def _select(self, reads: list[int], writes: list[int], errors: list[int], timeout: float | None = None) -> Any:
        return self.wait(reads, timeout), [], []

    def cores(self) -> set[int]:
        return set(range(self._cores))


class Poll:
    """select.poll over simulated descriptors."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._numbers = machine, dict[int, None]()

    def register(self, number: int, events: int = 0) -> None:
        self._machine.descriptor(number)
        self._numbers[number] = None

    def unregister(self, number: int) -> None:
        del self._numbers[number]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        found = self._machine.wait(self._numbers, None if milliseconds is None else milliseconds / 1000)
        return [(number, select.POLLIN) for number in found]


class _Os:
    """The module `os`; other names are the real one's."""

    def __init__(self, machine: Machine) -> None:
        run = machine.run
        self.getpid: Callable[[], int] = lambda: run.current.process.pid
        self.pidfd_open = lambda pid, flags=0: machine.open_process(pid)
        self.eventfd = lambda value=0, flags=0: machine.open_counter()
        self.eventfd_write = lambda number, value: machine.count(number)
        self.close = machine.close
        self._exit = lambda status: run.exit()
        self.sched_getaffinity = lambda pid: machine.cores()
        self.urandom: Callable[[int], bytes] = run.random.randbytes
        self._files = machine.files

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        found = _PROC.fullmatch(str(path))
        if found is not None and int(found[1]) >= 1_000_000_000:
            path = f"/proc/self/fd/{found[2]}"
        return self._kept(os.open(path, flags, mode))

    def memfd_create(self, name: str, flags: int = 0) -> int:
        return self._kept(os.memfd_create(name, flags))

    def _kept(self, number: int) -> int:
        self._files.add(number)
        return number

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _Signal:
    """The module `signal`."""

    def __init__(self, machine: Machine) -> None:
        self.pidfd_send_signal = machine.signal_process

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)
