"""Runs the programs of a world on a backend and measures it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from distxla import clock
from distxla.cli import terminal
from distxla.cli.arguments import Arguments
from distxla.cli.feeds import Feeds, fed_cluster, fed_reference
from distxla.cli.output_files import written_whole
from distxla.cli.programs import RunPrograms
from distxla.cli.report_page import command_line
from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass, field
from distxla.machine.shortages import unwritten
from distxla.time_limit import phase, seconds_left
from distxla.without_cluster.whole_limit import whole_limit

if TYPE_CHECKING:
    from distxla.cli.nodes import Nodes
    from distxla.diagnosis.facts.blocked import Injected
    from distxla.ir.module import Module
    from distxla.oracle.origins import Origins
    from distxla.runtime.arrays.executable import Executable
    from distxla.runtime.calls.fault_injection import Injection
    from distxla.runtime.calls.timeline import Timeline
    from distxla.runtime.checks.declared_values import SameValues
    from distxla.runtime.cluster import Cluster

Array = np.ndarray[Any, Any]
Leaves = list[Array | None]


@dataclass
class Execution:
    """Results and times of a run.

    outs[d][k]: leaf k on device d, of the last step.  compile_s: the compiler's time over all programs (the time to
    read them if they are cached).  compile_wall_s: wall-clock time of the same, with the start of the compiler's
    process; the replicas start at the same time.  start_s: from the start of the cluster until all replicas were ready.
    load_s: to load the programs on them.  steps_s: one wall-clock time a step, results stay on their devices.  cached:
    no program had to be compiled.  places: (device, host, process id).  injected: faults, as Cluster.injected.
    """

    outs: dict[int, Leaves]
    compile_s: float = 0.0
    compile_wall_s: float = 0.0
    start_s: float = 0.0
    load_s: float = 0.0
    steps_s: list[float] = field(default_factory=list)
    cached: bool = False
    places: list[tuple[int, str, int]] = field(default_factory=list)
    injected: tuple[Injected, ...] = ()


def require_memory(world: RunPrograms, nodes: Nodes, backend: str) -> None:
    """OutOfMemoryError if a device, or this machine, can't hold the programs' arguments and results.

    Called before anything starts; temporaries aren't known yet.
    """
    from distxla.machine.memory_limits import Limit, free_memory
    from distxla.runtime.values import memory_need

    room = memory_need.Room.here()
    if backend == "reference":
        limit = room.most if nodes.device_memory is None else Limit(nodes.device_memory, "--device-memory")
    else:
        limit = room.device_memory(world.device_count if nodes.address is None else 1, nodes.device_memory)
    needs = [(memory_need.Need(program.module), len(program.devices)) for program in world.programs]
    for need, _ in needs:
        memory_need.require_memory(need, limit)
    if nodes.address is None:
        memory_need.require_host_memory(needs, free_memory())


def run_on_reference(
    world: RunPrograms, arguments: Arguments, repeat: int, feeds: Feeds, check: Sequence[str] = ()
) -> Execution:
    """Every device in this process, in NumPy; random states and feeds go on from step to step, as on a cluster.

    check: as of `Cluster.compile`.
    """
    import os
    import socket

    from distxla.oracle.lockstep import run_programs

    devices = {world.logical(device): device for device in world.program_of}
    programs = {world.logical(device): program.module for device, program in world.program_of.items()}
    given = {world.logical(device): leaves for device, leaves in arguments.by_device.items()}
    execution = Execution({}, places=[(device, socket.gethostname(), os.getpid()) for device in devices.values()])
    random_states: dict[int, int] = {}
    checks = _ReferenceChecks(world, check)
    checks.look_at(programs, given, results=False)
    with phase("evaluating"), fed_reference(feeds, world.logical) as streams:
        for _ in range(repeat):
            begin = clock.now()
            with whole_limit():
                outs = run_programs(
                    programs,
                    given,
                    world.counts,
                    time_limit=seconds_left(),
                    random_states=random_states,
                    streams=streams,
                    origins=checks.begun(),
                )
                checks.look_at(programs, outs, results=True)
                execution.outs = {devices[id_]: leaves for id_, leaves in outs.items()}
            execution.steps_s.append(clock.now() - begin)
    return execution


class _ReferenceChecks:
    """The checks of a run's steps. ReplicationError and NonFiniteError, as a cluster raises them."""

    def __init__(self, world: RunPrograms, names: Sequence[str]) -> None:
        self._world, self._names = world, names
        self._origins: Origins | None = None
        self._by_device: dict[int, SameValues] = {}
        if "replication" in names:
            from distxla.runtime.checks.declared_values import SameValues

            for devices, module in _by_module({world.logical(d): p.module for d, p in world.program_of.items()}):
                if same := SameValues(module, world.counts).bound(None, devices):
                    self._by_device |= dict.fromkeys(devices, same)

    def begun(self) -> Origins | None:
        """A step begins."""
        if self._by_device:
            from distxla.runtime.checks.declared_values import SeenByReference

            for same in self._by_device.values():
                same.begin()
            self._origins = SeenByReference(self._by_device, notes_origins="nan" in self._names)
        elif "nan" in self._names:
            from distxla.oracle.origins import Origins

            self._origins = Origins()
        return self._origins

    def look_at(
        self, programs: Mapping[int, Module], leaves: Mapping[int, Sequence[Array | None]], *, results: bool
    ) -> None:
        """leaves: of arguments or results, by the world's flattened ids."""
        if results and self._origins is not None and (error := self._origins.error(leaves)) is not None:
            raise error
        if "replication" not in self._names:
            return
        from distxla.compiler.passes.placements import placements_of
        from distxla.runtime.checks.replication import require_same

        counts = self._world.counts
        wholes = {self._world.logical(d): p.whole for d, p in self._world.program_of.items()}
        for devices, module in _by_module(programs):
            if results and devices[0] in self._by_device:
                placements = placements_of(module, counts.partitions, wholes[devices[0]])
                if (differs := self._by_device[devices[0]].error(placements)) is not None:
                    raise differs
            mine = {device: leaves[device] for device in devices if device in leaves}
            require_same(module, wholes[devices[0]], mine, counts, results=results)


def _by_module(programs: Mapping[int, Module]) -> Iterator[tuple[list[int], Module]]:
    """Devices that run the same program."""
    found: dict[int, tuple[list[int], Module]] = {}
    for device, module in programs.items():
        found.setdefault(id(module), ([], module))[0].append(device)
    yield from found.values()


def differs_by_step(world: RunPrograms, feeds: Feeds) -> bool:
    """Whether a program has something of its own from step to step, so that step n tells nothing about step 1."""
    return feeds.exist or any(
        i.op.advances_state
        for program in world.programs
        for computation in program.module.computations
        for i in computation
    )


def _compiling_s(executable: Executable) -> float:
    """Seconds that the compiler's stages took."""
    if executable.cached:
        return executable.compile_s
    return sum(executable.program.debug.timings.values())


@contextmanager
def _traced(cluster: Cluster, path: str | None, page: str | None) -> Iterator[None]:
    """Calls in the body are recorded and written, even if one fails; ArgumentError where that is not possible.

    path: of the file for Perfetto.  page: of the one for a browser.
    """
    if path is None and page is None:
        yield
        return
    trace = cluster.trace()
    try:
        yield
    finally:
        trace.close()
        if trace.left_out:
            terminal.write(f"note: {path or page}: {trace.left_out}", err=True)
        failing = sys.exception()
        try:
            for told in _written(trace.timeline(), path, page):
                terminal.write(f"note: {told}", err=True)
        except ArgumentError as why:
            if failing is None:
                raise
            failing.add_note(why.message)


def _written(timeline: Timeline, path: str | None, page: str | None) -> Iterator[str]:
    """Writes the files; where each is, in words. Raises ArgumentError."""
    if path is not None:
        try:
            timeline.write(path)
        except OSError as error:
            raise ArgumentError(f"cannot write {path}: {unwritten(error)}") from error
        yield f"the trace is in {path}; ui.perfetto.dev opens it"
    if page is not None:
        from distxla.runtime.calls.timeline_page import page as page_of

        with written_whole(page) as file:
            file.write(page_of(timeline, command_line()).encode())
        yield f"the timeline is in {page}"


def _tell_placements(world: RunPrograms, executables: Sequence[Executable]) -> None:
    """How the arrays of global modules were cut, whose programs are compiled as those of one device."""
    from distxla.compiler.passes.placements import placements_of

    for program, executable in zip(world.programs, executables, strict=True):
        executable.placements = placements_of(program.module, world.counts.partitions, program.whole)


def run_on_cluster(
    world: RunPrograms,
    arguments: Arguments,
    repeat: int,
    nodes: Nodes,
    feeds: Feeds,
    trace: str | None = None,
    timeline: str | None = None,
    injection: Injection | None = None,
    backend: str = "cpu",
    check: Sequence[str] = (),
) -> Execution:
    """Every device a process. Modules are compiled while the replicas start; arguments are on their devices before the
    first step, and results stay there until the last one is over.

    trace, timeline: files for the timeline of all steps, for Perfetto and as a page, written however they end.
    injection: faults to inject.  check: as of `Cluster.compile`.
    """
    from distxla.runtime.cluster import Cluster

    terminal.show_notices()
    count = world.device_count
    cluster = Cluster(
        world.cluster_counts.replicas,
        world.cluster_counts.partitions,
        address=nodes.address,
        devices_per_host=nodes.devices_per_host,
        device_memory=nodes.device_memory,
        devices_per_gpu=nodes.devices_per_gpu,
        backend=backend,
        inject=injection or (),
        network=nodes.network,
    )
    with closing(cluster.start()):
        with terminal.progress(f"compiling, and starting {count} replica{'s' if count > 1 else ''}"):
            traced = trace is not None or timeline is not None
            executables = [
                cluster.compile(
                    p.module,
                    p.devices if world.table is None else None,
                    device_assignment=world.table,
                    trace=traced,
                    check=check,
                )
                for p in world.programs
            ]
            if "replication" in check:
                _tell_placements(world, executables)
            with phase("starting the replicas"):
                cluster.wait_started()
        execution = Execution(
            {},
            compile_s=sum(_compiling_s(e) for e in executables),
            compile_wall_s=sum(e.compile_s for e in executables),
            start_s=cluster.start_s,
            cached=all(e.cached for e in executables),
            places=[place for place in cluster.replicas_info if place[0] in world.program_of],
        )
        with phase("giving the devices their arguments"):
            placed = {d: [cluster.put(a, d) for a in leaves] for d, leaves in arguments.by_device.items()}
        programs = {executable.devices: executable for executable in executables}
        outs = {}
        with (
            phase("running"),
            terminal.progress("running"),
            _traced(cluster, trace, timeline),
            fed_cluster(cluster, feeds),
        ):
            for _ in range(repeat):
                begin = clock.now()
                with whole_limit():
                    outs = cluster.run(programs, placed, time_limit=seconds_left())
                execution.steps_s.append(clock.now() - begin)
        execution.injected = cluster.injected
        execution.load_s = sum(e.load_s for e in executables)
        execution.steps_s[0] -= execution.load_s  # the first call loads the programs
        for device, leaves in outs.items():
            execution.outs[device] = [np.asarray(leaf) if leaf.hlo_shape.is_array else None for leaf in leaves]
    return execution
