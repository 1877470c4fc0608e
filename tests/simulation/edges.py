"""The runtime's interfaces to the machine, and their stand-ins in a simulated run.

Time comes from distxla/clock.py, which takes another clock. Modules of the runtime reach threads, processes, sockets
and Ray by names of their own: `import socket`, then `socket.socket()`. A simulated run gives the modules other objects
under these names, and takes them back at its end.
Nothing else of the runtime is replaced; test_edges.py holds the modules to it.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import pkgutil
import queue
import secrets
import select
import selectors
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakSet

import distxla.collectives.transports
import distxla.runtime
import distxla.wire
from distxla import clock
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_words import SharedWords
from distxla.compiler.server_share import ServerShare
from distxla.machine import fault_signals, futexes, memory_files, memory_limits, pages, processes, segments
from distxla.program.artifact import CompiledProgram
from distxla.runtime.calls import dispatch
from distxla.runtime.failures import deadlocks
from distxla.runtime.hosts import process_ends
from distxla.runtime.ray import access
from distxla.runtime.ray.session import RayHere
from distxla.runtime.replica import crash_frames, serve
from distxla.targets import registry
from distxla.targets.native import host
from distxla.targets.native import load as image
from distxla.targets.target import Atomics, LoadedImage
from distxla.wire import answers
from tests.simulation import native
from tests.simulation.actors import Actors
from tests.simulation.machine import Machine
from tests.simulation.native import NATIVE, Futexes
from tests.simulation.scheduler import Scheduler
from tests.simulation.sockets import Network
from tests.simulation.threads import Threads

FRAME_PIECE_BYTES = 4096  # of a proxy's frames: small arrays travel in several, too
MACHINE = (threading, queue, os, select, selectors, signal, socket, secrets)
# the processes beside the replicas and agents, which a simulated run does without
BEYOND = ("distxla.runtime.ray",)


def modules() -> list[ModuleType]:
    """The modules whose code runs in a simulation and reaches the machine."""
    found: list[ModuleType] = [image, memory_limits, host, pages, segments, memory_files, processes]
    for package in (distxla.runtime, distxla.wire, distxla.collectives.transports):
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not entry.name.startswith(BEYOND):
                found.append(importlib.import_module(entry.name))
    return found


@cache
def _places() -> list[tuple[ModuleType, str, str]]:
    """(module, name, thing) of all names for which a run has stand-ins."""
    stands_for: dict[int, str] = {id(module): module.__name__ for module in MACHINE}
    for what, thing in (
        ("pool", concurrent.futures.ThreadPoolExecutor),
        ("access to Ray", access),
        ("compile server", ServerShare),
        ("free_memory", memory_limits.free_memory),
        ("is_stopped", processes.is_stopped),
        ("ended_by", processes.ended_by),
        ("kill counts", process_ends.KillCounts),
        ("support_program", serve.support_program),
        ("note_faults", fault_signals.note_faults),
        ("write_frames_at_crashes", crash_frames.write_frames_at_crashes),
        ("own_signal_stack", fault_signals.own_signal_stack),
        ("load_image", registry.load_image),
        ("resolve_import", image.resolve_import),
        ("resolve_import", registry.resolve_import),
        ("atomics", registry.atomics),
        ("mapping", segments._Mapping),
    ):
        stands_for[id(thing)] = what
    return [
        (module, name, stands_for[id(value)])
        for module in modules()
        for name, value in vars(module).items()
        if id(value) in stands_for
    ]


class Stepping:
    """Words of shared memory as Python reads and writes them: another task may go on before each access."""

    __slots__ = ("_step", "_view")

    def __init__(self, view: memoryview, step: Callable[[], None]) -> None:
        self._view, self._step = view, step

    def __getitem__(self, index: Any) -> Any:
        self._step()
        return self._view[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._step()
        self._view[index] = value

    def release(self) -> None:
        self._view.release()


class _OfProcess:
    """The connections that each simulated process looks at: a module has one of its own in each."""

    def __init__(self, run: Scheduler) -> None:
        self._run = run
        self._watches: dict[int, answers.Watch] = {}

    def add(self, one: answers.Answered) -> None:
        self._watches.setdefault(self._run.current.process.pid, answers.Watch()).add(one)


class Edges:
    """The machine of one run, in place while `installed` lasts. support: the serve loops, compiled for simulation."""

    def __init__(
        self,
        run: Scheduler,
        machine: Machine,
        network: Network,
        actors: Actors,
        support: CompiledProgram,
        *,
        looks_often: bool,
    ) -> None:
        self.run, self.machine, self.network, self.actors, self.support = run, machine, network, actors, support
        self._looks_often = looks_often
        self.threads = Threads(run)
        self.futexes = Futexes(run)
        self.images: list[LoadedImage] = []
        self.blocks: list[memoryview] = []  # of the control blocks that were made
        self._mappings: WeakSet[Any] = WeakSet()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Until the end of the with-block the runtime's modules are on this machine."""
        kept = [(module, name, getattr(module, name)) for module, name, _ in _places()]
        others = self._others()
        kept += [(owner, name, vars(owner)[name]) for owner, name, _ in others]
        stand_ins = self._stand_ins()
        NATIVE.run, NATIVE.futexes = self.run, self.futexes
        try:
            for module, name, what in _places():
                setattr(module, name, stand_ins[what])
            for owner, name, value in others:
                setattr(owner, name, value)
            with clock.replaced(self.threads.time), self.actors.imported():
                yield
        finally:
            NATIVE.run = None
            for owner, name, value in kept:
                setattr(owner, name, value)

    def unmap(self) -> None:
        """Release the shared memory that is still mapped, as a kernel does; nobody runs who could access it."""
        for mapping in list(self._mappings):
            mapping.release()
        self._mappings.clear()

    def _stand_ins(self) -> dict[str, Any]:
        threads, machine = self.threads, self.machine
        return {
            "threading": threads.threading,
            "queue": threads.queue,
            "pool": threads.pool,
            "os": machine.os,
            "select": machine.select,
            "signal": machine.signal,
            "socket": self.network.socket,
            "selectors": self.network.selectors,
            "secrets": SimpleNamespace(token_bytes=self.run.random.randbytes),
            "access to Ray": SimpleNamespace(
                acquire=lambda *_: (RayHere(), True),
                started=lambda: None,
                release=lambda _: None,
                is_embedded=lambda _: False,
                require_progress=lambda _: None,
            ),
            "compile server": lambda: SimpleNamespace(close=lambda: None),
            "free_memory": lambda *_: memory_limits.Limit(1 << 50, "this machine"),
            "is_stopped": machine.is_stopped,
            "ended_by": lambda *_: signal.SIGKILL,
            "kill counts": lambda _: SimpleNamespace(risen=lambda: ""),
            "support_program": lambda: self.support,
            "note_faults": lambda *_: None,
            "write_frames_at_crashes": lambda *_: None,
            "own_signal_stack": lambda: None,
            "load_image": self._load_image,
            "resolve_import": native.resolve,
            "atomics": self._atomics,
            "mapping": self._mapping(),
        }

    def _others(self) -> list[tuple[Any, str, Any]]:
        """Names that are no module's import: libc's system calls, and words that Python reads."""
        step = self.run.step
        begin, begin_words, row = ControlBlock.__init__, SharedWords.__init__, SharedWords.row

        def begin_block(block: ControlBlock, *arguments: Any) -> None:
            begin(block, *arguments)
            self.blocks.append(block.segment.bytes.data)

        def begin_stepping(words: SharedWords, view: memoryview) -> None:
            begin_words(words, view)
            words._words = Stepping(words._words, step)  # type: ignore[assignment]
            words._longs = Stepping(words._longs, step)  # type: ignore[assignment]

        pieces = [module for module in modules() if hasattr(module, "FRAME_PIECE_BYTES") and ".tcp." in module.__name__]
        return [
            *((module, "FRAME_PIECE_BYTES", FRAME_PIECE_BYTES) for module in pieces),
            *self._often(),
            (futexes, "_call", NATIVE.libc),
            (answers, "watch", _OfProcess(self.run)),
            (ControlBlock, "__init__", begin_block),
            (SharedWords, "__init__", begin_stepping),
            (SharedWords, "row", lambda *arguments: self._stepping(row(*arguments))),
        ]

    def _stepping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that touches shared words: another task may go on before it does."""
        step = self.run.step

        def call(*arguments: Any) -> Any:
            step()
            return function(*arguments)

        return call

    def _atomics(self) -> Atomics:
        return Atomics(*map(self._stepping, registry.atomics()))

    def _often(self) -> list[tuple[Any, str, Any]]:
        """How often the driver looks at its devices."""
        if not self._looks_often:
            return []
        return [(dispatch, "SLICE_NS", dispatch.SLICE_NS // 100), (deadlocks, "FAR_S", deadlocks.FAR_S / 100)]

    def _load_image(self, *arguments: Any) -> LoadedImage:
        loaded = _load_image(*arguments)
        self.images.append(loaded)
        return loaded

    def _mapping(self) -> type:
        futexes, mappings = self.futexes, self._mappings

        class Mapping(_MAPPING):  # type: ignore[misc, valid-type]
            """A mapping whose words can be slept on."""

            def __init__(self, parts: Any) -> None:
                super().__init__(parts)
                at = self.__array_interface__["data"][0]
                self._known = at, sum(size for _, size in parts)
                for descriptor, size in parts:
                    futexes.mapped(at, size, native.file_of(descriptor))
                    at += size

                mappings.add(self)

            def __del__(self) -> None:
                self.release()

            def release(self) -> None:
                """At the end of the last array, or of the run: what a killed process still had mapped goes, too."""
                if hasattr(self, "_known"):
                    futexes.unmapped(*self._known)
                    super().__del__()
                    del self._known, self._address

        return Mapping


_load_image, _MAPPING = registry.load_image, segments._Mapping
