"""One simulated run: a cluster, its user's calls, and the outcome."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from distxla.collectives.protocols import control_block as control_words
from distxla.program.artifact import CompiledProgram
from distxla.runtime import cluster as clusters
from tests.simulation import native
from tests.simulation.actors import Actors
from tests.simulation.edges import Edges
from tests.simulation.machine import Machine
from tests.simulation.scheduler import Scheduler, Stuck
from tests.simulation.sockets import Network, Weather

_support: list[CompiledProgram] = []


def support() -> CompiledProgram:
    """The serve loops, for simulated runs, once a process."""
    if not _support:
        from distxla.collectives.transports.shared_memory.emit_call_loops import compile_call_loops

        with native.compiling():
            _support.append(compile_call_loops())
    return _support[0]


@contextmanager
def compiled_anew() -> Iterator[None]:
    """The serve loops within are compiled again, from another compiler perhaps."""
    kept = list(_support)
    _support.clear()
    try:
        yield
    finally:
        _support[:] = kept


@dataclass
class Outcome:
    """How a run ended. complaint: what is wrong with it, "" if nothing is.  digest: of all decisions.  notes: what
    happened, where wanted."""

    complaint: str = ""
    digest: int = 0
    steps: int = 0
    switches: int = 0
    milliseconds: float = 0.0  # of virtual time
    notes: list[str] = field(default_factory=list)


class World:
    """A scenario's view of its run."""

    def __init__(self, run: Scheduler, edges: Edges) -> None:
        self.run, self.edges = run, edges
        self.complaints: list[str] = []
        self.headers = [0]  # where those of slices are in the control blocks

    @property
    def random(self) -> random.Random:
        return self.run.random

    def complain(self, text: str) -> None:
        self.complaints.append(text)
        self.run.note(text)


def simulate(
    seed: int | str,
    scenario: Callable[[World], None],
    hosts: Sequence[int],
    *,
    looks_often: bool = True,
    logs: bool = False,
) -> Outcome:
    """Run a scenario in the driver of a cluster room with so many CPUs on each host.

    looks_often: the driver may look at its devices a hundred times as often, if the seed says so.
    """
    program = support()
    collecting = gc.isenabled()
    gc.disable()  # when garbage is collected depends on other runs
    run = Scheduler(seed, logs=logs)
    cores = run.random.choice((1, 1, 2, 16))
    machine = Machine(run, cores, notice_ns=run.random.choice((0, 1_000_000, 50_000_000)))
    weather = Weather(run.random.choice((1_000, 50_000, 3_000_000)), capacity=run.random.choice((16 << 10, 64 << 10)))
    network = Network(run, weather)
    run.on_end.append(network.end_of)
    actors = Actors(run, [(f"node{k}", count) for k, count in enumerate(hosts)])
    edges = Edges(run, machine, network, actors, program, looks_often=looks_often and run.random.random() < 0.3)
    world = World(run, edges)
    opened = set(clusters._open)
    try:
        with edges.installed():
            driver = run.process("driver")
            run.spawn(driver, "main", lambda: scenario(world))
            run.current = run.tasks[0]
            try:
                run.run()
            except Stuck as stuck:
                world.complain(str(stuck))
            world.complaints += run.failures
            run.failures.clear()
            _let_devices_end(edges, world.headers)
            run.end()
    finally:
        for cluster in set(clusters._open) - opened:
            clusters._open.discard(cluster)
        _release(edges, world)
        if collecting:
            gc.enable()
    milliseconds = (run.now - 10**15) / 1e6
    return Outcome("\n".join(world.complaints), run.digest, run.steps, run.switches, milliseconds, run.log or [])


def _let_devices_end(edges: Edges, headers: Sequence[int]) -> None:
    """Devices that were killed in emitted code, or still wait there: let every wait return, and then the serve loop."""
    for block in edges.blocks:
        words = np.frombuffer(block, np.uint32)
        commands = [(header + control_words.H_COMMAND) // 4 for header in headers]
        for header in headers:
            words[(header + control_words.H_ABORT) // 4] = 1
        sequence = max(int(words[command]) for command in commands) + 1 & 0xFFFFFFFF
        for device in range(int(words[control_words.H_DEVICES // 4])):
            record = control_words.record_offset(device)
            words[(record + control_words.R_COMMAND_KIND) // 4] = control_words.CommandKind.STOP
            words[(record + control_words.R_COMMAND_SEQUENCE) // 4] = sequence
        words[commands] = sequence


def _release(edges: Edges, world: World) -> None:
    """Release the resources of killed processes, as a kernel does."""
    for loaded in edges.images:
        loaded.close()
    edges.images.clear()
    if edges.run.abandoned == 0:  # else some task is still amid emitted code
        edges.unmap()
    edges.blocks.clear()
    for descriptor in list(edges.machine.files):
        os.close(descriptor)
    for network_socket in edges.network.sockets:
        network_socket.incoming = network_socket.outgoing = None
    edges.run.tasks.clear()
    edges.run.processes.clear()
    edges.run._timers.clear()
    edges.actors.actors.clear()
