"""The user's handle on a set of replicas."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from distxla.collectives.protocols import event as event_words
from distxla.compiler.artifact import CompiledProgram
from distxla.compiler.cache import compile_cached
from distxla.compiler.passes.manual_partitions import PerDevice
from distxla.compiler.passes.partitioning import device_program
from distxla.compiler.passes.reduction_order import with_reduction_order
from distxla.compiler.passes.rounds_in_order import with_rounds_in_order
from distxla.compiler.server import CompileServer
from distxla.compiler.verify.verifier import verify_module
from distxla.compiler.verify.visible_obstacles import refuse, visible_obstacles
from distxla.compiler.verify.world import verify_order, verify_together
from distxla.errors import ArgumentError, ClusterError, DistxlaError
from distxla.ir.element_type import element_type_of
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.machine.heap import Heap
from distxla.ops.custom_calls.user import user_targets
from distxla.runtime.cluster_hosts import Hosts
from distxla.runtime.device_array import DeviceArray
from distxla.runtime.executable import Executable, Row, as_argument, expand, rows_of
from distxla.runtime.fault_injection import Injection, injection_of
from distxla.runtime.handle import Handle
from distxla.runtime.hosts.budget import checked_memory
from distxla.runtime.hosts.nodes import checked_counts, checked_size
from distxla.runtime.interrupts import deferred_interrupt
from distxla.runtime.memory_need import Need
from distxla.runtime.program_loading import ProgramLoader
from distxla.scheduler.communication_order import order_communication
from distxla.targets.registry import target_of_backend
from distxla.time_limit import phase
from distxla.time_limit import time_limit as within

if TYPE_CHECKING:
    from distxla.diagnosis.blocked import Injected
    from distxla.runtime.host import DeviceMemory
    from distxla.runtime.streams import ClusterStreams, HostChannel, Infeed, Outfeed
    from distxla.runtime.trace import Trace

_NOT_STARTED = "the cluster is not started: use `with Cluster(...) as cluster:`, or call `start()` and then `close()`"

_open: weakref.WeakSet[Cluster] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for cluster in list(_open):
        cluster.close()


class Cluster(Handle):
    """replicas x partitions devices, each a Ray actor in a process of its own.

        with Cluster(replicas=8) as cluster:
            step = cluster.compile(module)
            outs = step(args)

    Entering initialises Ray in this process, and begins to start the replicas in the background; `compile` needs none
    of them, so both overlap, and the first call waits for the rest. `wait_started` waits and raises its error.
    Leaving takes everything down that the cluster started.

    address: a Ray cluster to join, of which this host is a node; None for an embedded Ray of our own
    (a Ray that this process has joined already is used instead).  devices_per_host: how many devices each Ray node
    takes, this host's first; by default this host takes them all if it has a CPU for each, else every node up to its
    CPUs, and where all together have too few, in proportion to them.  device_memory: bytes of each device's memory,
    also as "2GiB"; by default what the smallest host has for all of its processes, 64 GiB at most.  start_s: seconds
    from `start` until all replicas served.  backend: "cpu", or "interpreted": kernels by the ops' `evaluate` in NumPy,
    everything else as ever (docs/guide/interpreted.md).  inject: faults to inject, such as
    "kill:device=3,at=all-reduce.7" (docs/guide/fault_injection.md).  Threads may share a cluster; calls run in turn.
    """

    _INTERNAL = frozenset({"adopt", "call", "heap", "memory", "resident_bytes"})

    def __init__(
        self,
        replicas: int = 1,
        partitions: int | None = None,
        *,
        address: str | None = None,
        devices_per_host: Sequence[int] | None = None,
        device_memory: int | str | None = None,
        backend: str = "cpu",
        inject: Sequence[str] | Injection = (),
    ) -> None:
        are_stated = partitions is not None
        replicas, partitions = checked_size(replicas, 1 if partitions is None else partitions)
        if not isinstance(address, str | None):
            raise ArgumentError(f"address: expected a string, HOST:PORT, found {address!r}")
        self._target = target_of_backend(backend)
        if devices_per_host is not None:
            devices_per_host = checked_counts(devices_per_host, replicas * partitions)
        self.replicas = replicas
        self.partitions = partitions
        self._stated_partitions = partitions if are_stated else None
        self.address = address
        self.start_s = 0.0
        self._server: CompileServer | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._closed = False
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._injection = injection_of(inject, replicas * partitions)
        between = self._injection.between_hosts if self._injection is not None else lambda hosts: ()
        memory = checked_memory(device_memory)
        self._hosts = Hosts(replicas, partitions, address, devices_per_host, self._closing, between, memory)
        self._loader: ProgramLoader | None = None
        self._trace: Trace | None = None
        self._rings: int | None = None  # where the rings of traces are in the control block

    # --- life

    def __repr__(self) -> str:
        counts = f"replicas={self.replicas}, partitions={self.partitions}"
        return f"Cluster({counts}{f', address={self.address!r}' if self.address else ''}): {self._state()}"

    def _state(self) -> str:
        if self._closing.is_set():
            return "closed"
        if self._thread is None:
            return "not started"
        if self._failure is not None:
            return "could not be started"
        return (
            "starting" if self._loader is None else f"{self.devices} device{'' if self.devices == 1 else 's'} running"
        )

    def __enter__(self) -> Cluster:
        with deferred_interrupt():  # otherwise no `close` would follow an interrupted start
            self.start()
        try:
            if not self._hosts.wait_joined(self._thread):
                self.wait_started()  # raises the error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions

    @property
    def injected(self) -> tuple[Injected, ...]:
        """The injected faults, including those that were drawn at random, and which have happened so far."""
        return () if self._injection is None else self._injection.found

    @property
    def replicas_info(self) -> list[tuple[int, str, int]]:
        """(device, host, pid) of every replica; blocks until they are started."""
        self.wait_started()
        return [(identity.device, identity.host, identity.pid) for identity in self._hosts.identities]

    def start(self) -> Cluster:
        """Begin to start; returns at once, before Ray is initialised: `wait_started`, or entering, waits for that.

        ClusterError if it was started or closed before, OutOfMemoryError.
        """
        if self._thread is not None or self._closing.is_set():
            raise ClusterError("a cluster is started once")
        self._hosts.prepare()
        _open.add(self)
        self._server = CompileServer()
        self._thread = threading.Thread(target=self._start, name="distxla-start", daemon=True)
        self._thread.start()
        return self

    def wait_started(self) -> None:
        """Block until all replicas serve; raises ClusterError where they could not be started."""
        if self._thread is None:
            raise ClusterError("the cluster is closed" if self._closing.is_set() else _NOT_STARTED)
        while self._thread.is_alive():
            self._thread.join(0.05)  # in slices: Ctrl-C
        if self._closing.is_set():
            raise ClusterError("the cluster is closed")
        if isinstance(self._failure, DistxlaError):
            raise self._failure
        if self._failure is not None:
            raise ClusterError(f"the cluster could not be started: {self._failure}") from self._failure

    @deferred_interrupt()
    def close(self) -> None:
        """Take down everything that this cluster started; blocks until it is gone. Twice is fine.

        KeyboardInterrupt comes when all is gone; a second Ctrl-C interrupts, and `close` may be called again.
        """
        if self._owner != os.getpid():  # a forked child has its parent's handle, not its cluster
            return
        self._closing.set()  # before the lock: a thread that has it and waits for actors' answers gives up
        with self._lock:
            if self._closed:
                return
        # Nothing below is undone or left out when it is interrupted and called again.
        if self._thread is not None:
            self._thread.join()
        if self._loader is not None:
            self._loader.close()
        self._loader = None
        self._hosts.close()
        if self._server is not None:
            self._server.close()
        self._closed = True
        _open.discard(self)

    def _start(self) -> None:
        begin = time.perf_counter()
        try:
            self._hosts.start()
            self.heap = Heap(self._hosts.budget.device_bytes, self._hosts.pages, headroom=self._hosts.headroom())
            self._loader = ProgramLoader(self._hosts, self.heap, self.replicas, self.partitions, self._unload)
            if self._injection is not None:
                self._injection.connect_feeds(self._loader.streams)
            self.start_s = time.perf_counter() - begin
        except BaseException as error:  # raised by `wait_started`
            self._failure = error

    # --- programs

    def compile(
        self,
        module: Module,
        devices: Iterable[int] | None = None,
        *,
        reduction_order: str | None = None,
        trace: bool = False,
        time_limit: float | None = None,
    ) -> Executable:
        """Compile the module for this cluster; it is loaded on its devices when they are up.

        devices: flattened ids that will run it, all by default.  reduction_order: "rank", "tree" or "ring", in which
        all-reduce and reduce-scatter combine their members' values; where it is not given, what the text says, rank by
        default.  trace: a `trace` shows each step that the program computes; its results are the same, but it takes
        longer.  time_limit: seconds for checking and compiling.  Blocks while compiling. Raises ArgumentError where the
        module's counts are not the cluster's, TimeLimitError, and the verifier's and the compiler's errors.
        """
        if self._closing.is_set():
            raise ClusterError("the cluster is closed")
        if self._server is None:
            raise ClusterError(_NOT_STARTED)
        if not isinstance(module, Module):
            raise ArgumentError(f"compile takes a Module, as load and parse give it, found {type(module).__name__}")
        whole = device_program(module, self._stated_partitions)
        module = module if whole is None else whole.module
        for name, wanted, found in (
            ("replica_count", self.replicas, module.replica_count),
            ("num_partitions", self.partitions, module.num_partitions),
        ):
            if found is not None and found != wanted:
                text = f"module {module.name} has {name}={found}, the cluster {wanted}"
                raise ArgumentError(text, module.locate_header(name))
        chosen = tuple(range(self.devices)) if devices is None else tuple(devices)
        if not chosen or any(not 0 <= d < self.devices for d in chosen):
            raise ArgumentError(f"devices {list(chosen)}: the cluster has devices 0 to {self.devices - 1}")
        with within(time_limit):
            return self._compile(module, chosen, whole, reduction_order, trace)

    def _compile(
        self,
        module: Module,
        chosen: tuple[int, ...],
        whole: PerDevice | None,
        reduction_order: str | None,
        trace: bool,
    ) -> Executable:
        begin = time.perf_counter()
        with phase("checking"):
            module = with_reduction_order(module, reduction_order)
            verify_module(module, self.replicas, self.partitions)
            refuse(module, visible_obstacles(module))
        self._hosts.budget.require(Need(module), chosen)
        targets = user_targets(module)
        with phase("compiling"):
            program, cached = self._compiled(module, chosen, trace)
        self._hosts.budget.require(Need.of(module, program), chosen)
        took = time.perf_counter() - begin
        return Executable(
            self, program, chosen, took, cached, module=module, targets=targets, whole=whole, traced=trace
        )

    def _compiled(self, module: Module, devices: tuple[int, ...], traced: bool) -> tuple[CompiledProgram, bool]:
        """The program, and whether the cache on disk had it."""
        assert self._server is not None
        # programs of other devices, which may be in its groups, are compiled without it
        compiled = module if len(devices) == self.devices else with_rounds_in_order(module)
        points = () if self._injection is None else self._injection.points(module, devices)
        counts = self.replicas, self.partitions
        found = compile_cached(self._server, compiled, *counts, traced=traced, points=points, target=self._target)
        if self._injection is not None:
            self._injection.require_points(found[0], devices, points)
        return found

    def adopt(self, program: CompiledProgram, devices: Iterable[int] | None = None) -> Executable:
        """An executable of a program that was compiled elsewhere, for this cluster's counts."""
        chosen = tuple(range(self.devices)) if devices is None else tuple(devices)
        return Executable(self, program, chosen, 0.0, False)

    def run(
        self,
        programs: Mapping[Any, Module | Executable],
        args: Mapping[int, Sequence[Any]] | Sequence[Any] | None = None,
        *,
        time_limit: float | None = None,
    ) -> dict[int, Row]:
        """Run several programs at once, each on its own devices: {range(0, 4): producer, range(4, 8): consumer}.

        args: the arguments of each device, by flattened id; devices that are missing take none. Or, as for an
        Executable, a list for each device of the cluster, or a flat one for all. Returns the result leaves of each
        device. Blocks; raises as `compile` and as calling an Executable do.
        """
        if args is not None and not isinstance(args, Mapping):
            args = dict(enumerate(rows_of(args, range(self.devices))))
        given: Mapping[int, Sequence[Any]] = args or {}
        calls: list[tuple[Executable, list[Sequence[Any]]]] = []
        for devices, module in expand(programs):
            executable = module if isinstance(module, Executable) else self.compile(module, devices)
            if executable.devices != devices:
                raise ArgumentError(f"{executable} was compiled for other devices than {list(devices)}")
            calls.append((executable, [list(given.get(device, ())) for device in devices]))
        outs = self.call(calls, time_limit=time_limit)
        return {
            device: row for (executable, _), rows in zip(calls, outs) for device, row in zip(executable.devices, rows)
        }

    def put(self, value: Any, device: int) -> DeviceArray:
        """Copy a NumPy array, or anything that np.asarray takes, to a device."""
        import numpy as np

        self.wait_started()
        if not 0 <= device < self.devices:
            raise ArgumentError(f"device {device}: the cluster has devices 0 to {self.devices - 1}")
        array = np.asarray(value)
        try:
            shape = Shape(element_type_of(array.dtype), array.shape)
        except (KeyError, TypeError):
            raise ArgumentError(f"no element type holds values of {array.dtype}") from None
        block = self.heap.allocate(array.nbytes, (device,))
        memory = self.memory(device)
        memory.write(block.offset, as_argument(array, shape, 0, device))
        return DeviceArray(memory, block, block.offset, device, shape)

    def infeed(self, device: int) -> Infeed:
        """The input of the device's infeeds, for the cluster's life. Blocks until the replicas serve."""
        return self._streams(device).infeed(device)

    def outfeed(self, device: int) -> Outfeed:
        """The output of the device's outfeeds, for the cluster's life. Blocks until the replicas serve."""
        return self._streams(device).outfeed(device)

    def host_channel(self, device: int, channel_id: int) -> HostChannel:
        """The host's side of a channel of the device's host transfers (is_host_transfer): an instruction without
        channel_id is on channel 0. Blocks until the replicas serve."""
        return self._streams(device).channel(device, channel_id)

    def _streams(self, device: int) -> ClusterStreams:
        self.wait_started()
        if not isinstance(device, int) or not 0 <= device < self.devices:
            raise ArgumentError(f"device {device}: the cluster has devices 0 to {self.devices - 1}")
        loader = self._loader
        if loader is None:
            raise ClusterError("the cluster is closed")
        return loader.streams

    def memory(self, device: int) -> DeviceMemory:
        """The device's memory as the driver reaches it."""
        return self._hosts.memory(device)

    def call(
        self,
        calls: list[tuple[Executable, list[Sequence[Any]]]],
        *,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> list[list[Row]]:
        """Run executables at once, each with its rows of arguments by device; `Executable.__call__` calls this."""
        if repeat < 1:
            raise ArgumentError(f"repeat: expected at least 1, found {repeat}")
        with self._lock:
            if self._loader is None:
                self.wait_started()
            loader = self._loader
            if loader is None or self._closing.is_set():
                raise ClusterError("the cluster is closed")
            given = [executable for executable, _ in calls]
            calls = list(zip(self._together(given), [rows for _, rows in calls], strict=True))
            loader.dispatcher.settle(time_limit)
            if self._injection is not None:
                loader.inject(self._injection, [executable for executable, _ in calls])
            for executable, _ in calls:
                if executable.number is None:
                    with phase("loading programs"):
                        loader.load(executable)
            loader.channels.connect([(e.number or 0, e.program, e.devices) for e, _ in calls])
            loader.communicators.await_others()
            kept = [executable.place_arguments(rows) for executable, rows in calls]
            outs = [executable.place_results() for executable, _ in calls]
            numbers = {d: executable.number or 0 for executable, _ in calls for d in executable.devices}
            try:
                with nullcontext() if self._trace is None else self._trace.call():
                    seconds = loader.dispatcher.call(numbers, repeat, time_limit)
            except BaseException as error:
                loader.dispatcher.keep(calls, kept, outs)
                if self._injection is not None:
                    self._injection.call_over(loader.dispatcher.aftermath(), error)
                raise
            for executable in given:
                executable.run_s = seconds
                executable.device_s = loader.dispatcher.device_seconds(executable.devices)
            if self._injection is not None:
                self._injection.call_over(loader.dispatcher.aftermath())
            del kept
        return outs

    def _unload(self, number: int) -> None:
        """In the unloader's thread: a program's last executable has gone."""
        with self._lock:
            if self._loader is not None and not self._closing.is_set():
                self._loader.unload(number)

    def trace(self) -> Trace:
        """Begin to record the devices' events, until the trace, a context manager, is left or closed; only one at a
        time. Blocks until the replicas serve.

            with cluster.trace() as trace:
                step(args)
            trace.write("step.json")
        """
        from distxla.runtime.trace import Trace, ring_events

        self.wait_started()
        with self._lock:
            loader = self._loader
            if loader is None or self._closing.is_set():
                raise ClusterError("the cluster is closed")
            if self._trace is not None and self._trace.is_active:
                raise ClusterError("a trace is taken already")
            loader.dispatcher.settle(None)
            if self._rings is None:
                size = ring_events(self.devices) * event_words.EVENT_BYTES
                self._rings = self._hosts.local.control.carve(size * self.devices)
            dispatcher = loader.dispatcher
            self._trace = Trace(self._hosts, self._rings, dispatcher.programs, dispatcher.modules)
            return self._trace

    def _together(self, executables: list[Executable]) -> list[Executable]:
        """The executables to run for these at once: themselves, unless they must communicate in another order so that
        no device waits for ever (communication_order.py); then those that change are compiled again, once.

        Raises the errors of `verify_together` for programs that can't communicate.
        """
        key = tuple(executable.serial for executable in executables)
        first, *others = executables
        found = first.together.get(key)
        if found is None:
            found = self._settled(executables)
            first.keep_together(key, others, found)
        return [other or executable for executable, other in zip(executables, found, strict=True)]

    def _settled(self, executables: list[Executable]) -> list[Executable | None]:
        known = [(e.devices, e.module) for e in executables if e.module is not None]
        if len(known) < len(executables):  # of programs that were compiled elsewhere the text isn't known
            return [None] * len(executables)
        with phase("ordering what devices do together"):
            verify_together(known, self.replicas, self.partitions, in_order=False)
            order = order_communication(known, self.replicas, self.partitions)
            ordered = list(zip([devices for devices, _ in known], order.modules, strict=True))
            verify_order(ordered, self.replicas, self.partitions)
        return [
            None if module is executable.module else self._again(executable, module)
            for executable, (_, module) in zip(executables, ordered, strict=True)
        ]

    def _again(self, old: Executable, module: Module) -> Executable:
        """The executable of a module that is the same in another order."""
        begin = time.perf_counter()
        program, cached = self._compiled(module, old.devices, old.traced)
        took, targets, whole, traced = time.perf_counter() - begin, old.targets, old.whole, old.traced
        return Executable(
            self, program, old.devices, took, cached, module=module, targets=targets, whole=whole, traced=traced
        )

    def resident_bytes(self) -> list[int]:
        """Resident memory of each replica without its arenas."""
        self.wait_started()
        return self._hosts.ask([replica.resident_bytes.remote() for replica in self._hosts.replicas], 30)
