"""The programs of all JAX processes, compiled and loaded once each, by the owner."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import Counter, OrderedDict
from functools import partial
from typing import Any, Final, NamedTuple

from distxla import clock
from distxla.collectives.protocols.launch_board import MOST_MEMBERS, MOST_PROGRAMS
from distxla.compiler.passes.placements import without_declared_values
from distxla.errors import ArgumentError, ClusterError, InternalError
from distxla.jax.partitioner.array_placements import placements_of_arrays
from distxla.jax.partitioner.partitioned_bytes import pack_partitioned, unpack_partitioned
from distxla.jax.partitioner.partitioning import Partitioned, by_server_once
from distxla.jax.processes.facts import CompiledFacts, CompileRequest, LoadedFacts, PartitionRequest
from distxla.jax.processes.fingerprint import fingerprint_of
from distxla.jax.processes.launch_logs import LaunchLogs
from distxla.jax.processes.messages import pack_json
from distxla.jax.processes.owned_cluster import OwnedCluster
from distxla.jax.processes.program_text import ProgramText
from distxla.jax.processes.single_flight import SingleFlight
from distxla.jax.processes.world import World
from distxla.lazy_dataclass import dataclass, field, replace
from distxla.rewrites.host_calls import functions_with_results
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.shared_image import without_image

_MOST_TEXTS: Final = 256  # of programs that no process has any more
_MOST_DIGESTS: Final = 4096
_MOST_NAMES: Final = 4096


class CompiledProgram(NamedTuple):
    """The answer to a request to compile. pickled: the program without its image, and the sites of its host calls."""

    program: int
    facts: CompiledFacts
    pickled: bytes


@dataclass(eq=False)
class _Owned:
    """answered: how often it was given to each process, without those answers that the process has dropped."""

    answer: CompiledProgram
    executable: Executable
    text: ProgramText
    answered: Counter[int] = field(default_factory=Counter)


class _Read(NamedTuple):
    """A request's program. name: of its module.  text: the parsed module is there with the first request only."""

    fingerprint: str
    name: str
    text: ProgramText | None


class OwnedPrograms:
    """Programs have numbers from 1. Equal ones have the same, also where one comes when all others are gone: another
    process may have called it before.

    Thread-safe; what takes long is done once where several ask for it.
    logs: of the processes, and the boards of their sets.
    """

    def __init__(self, cluster: OwnedCluster, world: World) -> None:
        self._cluster, self._world = cluster, world
        self.logs = LaunchLogs(cluster, world.processes)
        self._lock = threading.Lock()  # of all below
        self._flights = SingleFlight()
        self._fingerprints: OrderedDict[str, tuple[str, str]] = OrderedDict()  # and names, by digest of what was asked
        self._names: OrderedDict[tuple[int, int], str] = OrderedDict()  # by process and program
        self._numbers: dict[str, int] = {}  # by fingerprint
        self._programs: dict[int, _Owned] = {}
        self._texts: OrderedDict[int, ProgramText] = OrderedDict()
        self._sets: list[tuple[int, ...]] = []

    # --- sets of processes

    def set_of(self, members: tuple[int, ...]) -> int:
        """The number of a set of processes."""
        with self._lock:
            if members not in self._sets:
                self._sets.append(members)
            return self._sets.index(members)

    def members_of(self, number: int) -> tuple[int, ...]:
        """The members of a set. ClusterError where there is none of this number."""
        with self._lock:
            if number < len(self._sets):
                return self._sets[number]
        raise ClusterError(f"there is no set {number} of processes")

    # --- compiling

    def partition(self, request: PartitionRequest, module: bytes) -> Partitioned:
        """Partition a module; blocks. Raises what the partitioner does."""
        digest = hashlib.sha256(pack_json(request.to_json()) + b"\0" + module).hexdigest()
        return self._flights.once(
            f"partition {digest}", partial(by_server_once, module, request.options, request.is_direct)
        )

    def compile(self, process: int, request: CompileRequest, packed: bytes | memoryview) -> CompiledProgram:
        """Compile a program, unless some process has it; blocks. packed: the partitioned module. Raises what compiling
        raises."""
        partitioned = unpack_partitioned(packed)
        while True:
            read = self._read(request, partitioned)
            number = self._flights.once(read.fingerprint, partial(self._compiled, request, partitioned, read))
            with self._lock:
                owned = self._programs.get(number)
                if owned is not None:  # not dropped meanwhile by those that had it
                    owned.answered[process] += 1
                    self._names[process, number] = read.name
                    _trim(self._names, _MOST_NAMES)
                    return owned.answer

    def _read(self, request: CompileRequest, partitioned: Partitioned) -> _Read:
        """The fingerprint of a program, for which its module is parsed, unless the same bytes came before."""
        bare = pack_partitioned(replace(partitioned, seconds=0.0, is_cached=False))
        digest = hashlib.sha256(pack_json(request.to_json()) + b"\0" + bare).hexdigest()
        with self._lock:
            known = self._fingerprints.get(digest)
        if known is not None:
            return _Read(*known, None)

        def read() -> _Read:
            text = self._text(request, partitioned)
            parts = text.rows, text.donated, text.checks, text.callbacks
            return _Read(fingerprint_of(text.module, partitioned, *parts), text.name, text)

        found = self._flights.once(digest, read)
        with self._lock:
            self._fingerprints[digest] = found.fingerprint, found.name
            _trim(self._fingerprints, _MOST_DIGESTS)
        return found

    def _text(self, request: CompileRequest, partitioned: Partitioned) -> ProgramText:
        devices = [device for row in request.rows for device in row]
        if not devices or any(device >= self._world.devices for device in devices):
            raise ArgumentError(f"devices {devices}: the processes have devices 0 to {self._world.devices - 1}")
        module = partitioned.module()
        rows, donated = [list(row) for row in request.rows], frozenset(request.donated)
        with_results = functions_with_results(module) if request.functions else ()
        callbacks = tuple(one for one in request.functions if one[0] in with_results)
        return ProgramText(0, module.name, module, rows, donated, partitioned, frozenset(request.checks), callbacks)

    def _compiled(self, request: CompileRequest, partitioned: Partitioned, read: _Read) -> int:
        with self._lock:
            number = self._numbers.setdefault(read.fingerprint, len(self._numbers) + 1)
            if number in self._programs:
                return number
        text = read.text or self._text(request, partitioned)
        begin = clock.now()
        # values inside are given to the driver by host calls, which here go to each device's own process
        module = without_declared_values(text.module) if text.checks else text.module
        executable = self._cluster.compile(
            module,
            device_assignment=text.rows,
            donated=text.donated,
            host_calls=dict.fromkeys(request.calls, _elsewhere),
            check=sorted(text.checks),
        )
        sites = tuple(call.site for call in executable.host_calls)
        executable.host_calls = ()  # the processes of the devices have the functions
        if text.checks:
            executable.placements = placements_of_arrays(partitioned)
        program = executable.program
        members = self._world.members(executable.devices)
        facts = CompiledFacts(
            fingerprint=read.fingerprint,
            cached=executable.cached,
            compile_s=clock.now() - begin,
            image_bytes=len(program.image.data),
            set=self.set_of(members),
            members=members,
            native=self._is_native(executable, number, members),
        )
        pickled = pickle.dumps((without_image(program), sites), protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._texts.pop(number, None)
            self._programs[number] = _Owned(
                CompiledProgram(number, facts, pickled), executable, replace(text, program=number)
            )
        return number

    def _is_native(self, executable: Executable, number: int, members: tuple[int, ...]) -> bool:
        """Whether a call takes no more than a command to its devices, which their processes give."""
        specs = executable.program.communicators
        is_plain = not executable.checks and not any(spec.stream is not None or spec.of_channels for spec in specs)
        return self.logs.is_open and is_plain and number < MOST_PROGRAMS and len(members) < MOST_MEMBERS

    # --- programs by number

    def load(self, process: int, program: int) -> LoadedFacts:
        """Have a program loaded on its devices, unless it is; blocks. What the process needs to know of its devices."""
        owned = self._owned(program)
        found = self._cluster.load(owned.executable, self._world.slice_of(process))
        facts = owned.answer.facts
        return replace(found, board=self.logs.board(facts.members)) if facts.native else found

    def drop(self, process: int, program: int) -> None:
        """The process does not have one of the programs any more that it was given; it goes with the last."""
        with self._lock:
            owned = self._programs.get(program)
            if owned is None or owned.answered[process] < 1:
                raise ClusterError(f"process {process} drops program {program}, which it does not have")
            owned.answered[process] -= 1
            self._forget_unused([program])

    def drop_all(self, process: int) -> None:
        """The process has ended."""
        with self._lock:
            for owned in self._programs.values():
                del owned.answered[process]
            self._forget_unused(list(self._programs))

    def _forget_unused(self, programs: list[int]) -> None:
        for number in programs:
            owned = self._programs[number]
            if any(owned.answered.values()):
                continue
            del self._programs[number]
            self._texts[number] = owned.text
            _trim(self._texts, _MOST_TEXTS)

    def text(self, program: int) -> ProgramText:
        """What is known of a program, for messages. KeyError where it was dropped long ago."""
        with self._lock:
            owned = self._programs.get(program)
            return self._texts[program] if owned is None else owned.text

    def name_of(self, process: int, program: int) -> str:
        """What a process calls a program; "" where that is forgotten."""
        with self._lock:
            return self._names.get((process, program), "")

    def executable(self, program: int) -> Executable:
        """ClusterError where no process has it."""
        return self._owned(program).executable

    def facts(self, program: int) -> CompiledFacts:
        """ClusterError where no process has it."""
        return self._owned(program).answer.facts

    def _owned(self, program: int) -> _Owned:
        with self._lock:
            owned = self._programs.get(program)
        if owned is None:
            raise ClusterError(f"no process has program {program}")
        return owned


def _trim(kept: OrderedDict[Any, Any], most: int) -> None:
    """Forget the oldest."""
    while len(kept) > most:
        kept.popitem(last=False)


def _elsewhere(*_: Any) -> Any:
    raise InternalError("a function of a JAX process was called in the owner's")


__all__ = ["CompiledProgram", "OwnedPrograms"]
