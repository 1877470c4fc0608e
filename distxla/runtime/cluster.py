"""The user's handle on a set of replicas."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from distxla import clock
from distxla.compiler.cache import compile_cached
from distxla.compiler.partitioners import device_program
from distxla.compiler.server_share import ServerShare
from distxla.compiler.verify.aliases import in_place_pairs
from distxla.compiler.verify.visible_obstacles import require_compilable
from distxla.errors import ArgumentError, ClusterError, DistxlaError
from distxla.ir.module import Module
from distxla.lazy_dataclass import replace
from distxla.machine.heap import Heap
from distxla.machine.shortages import started_thread
from distxla.ops.custom_calls.user import user_targets
from distxla.program.artifact import CompiledProgram
from distxla.program.options import CompileOptions
from distxla.rewrites.driver_steps import after_driver_steps
from distxla.runtime.arrays.call_queue import CallQueue
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.arrays.device_cluster import CallAreaWriter
from distxla.runtime.arrays.executable import Executable, Row, expand, put_array, rows_of
from distxla.runtime.arrays.host_calls import HostCalls, checked_host_calls, require_outside
from distxla.runtime.calls.cluster_hosts import Hosts
from distxla.runtime.calls.common_order import in_common_order
from distxla.runtime.calls.direct_calls import DirectCalls
from distxla.runtime.calls.fault_injection import Injection, injection_of
from distxla.runtime.calls.program_loading import ProgramLoader
from distxla.runtime.calls.unloading import Loaded
from distxla.runtime.checks.checks import NAN, begin_checks, checks_of, end_checks, with_same_values
from distxla.runtime.hosts.budget import checked_memory
from distxla.runtime.hosts.gpus import gpu_sharing
from distxla.runtime.hosts.nodes import checked_counts, checked_size
from distxla.runtime.values.device_assignment import DeviceAssignment, assignment_of
from distxla.runtime.values.handle import Handle
from distxla.runtime.values.interrupts import deferred_interrupt
from distxla.runtime.values.memory_need import Need
from distxla.targets.registry import target_of_backend
from distxla.time_limit import phase
from distxla.time_limit import time_limit as within

if TYPE_CHECKING:
    from distxla.diagnosis.facts.blocked import Injected
    from distxla.runtime.calls.trace import Trace
    from distxla.runtime.streams.streams import ClusterStreams, HostChannel, Infeed, Outfeed
    from distxla.runtime.values.host import DeviceMemory

_NOT_STARTED = "the cluster is not started: use `with Cluster(...) as cluster:`, or call `start()` and then `close()`"

_open: weakref.WeakSet[Cluster] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    with ExitStack() as stack:  # each is closed whatever the others raise
        for cluster in list(_open):
            stack.callback(cluster.close)


class Cluster(Handle):
    """replicas x partitions devices, each a Ray actor in a process of its own.

        with Cluster(replicas=8) as cluster:
            step = cluster.compile(module)
            outs = step(args)

    Entering begins to start Ray and the replicas in the background; `compile` needs none of them, so both overlap, and
    the first call waits for the rest. `wait_started` waits and raises its error. Leaving takes all of that down.

    address: a Ray cluster to join, of which this host is a node; None for an embedded Ray of our own
    (a Ray that this process has joined already is used instead).  devices_per_host: how many devices each Ray node
    takes, this host's first; by default this host takes them all if it has a CPU for each, else every node up to its
    CPUs, and where all together have too few, in proportion to them.  device_memory: bytes of each device's memory,
    also as "2GiB"; by default what the smallest host has for all of its processes, 64 GiB at most.  start_s: seconds
    from `start` until all replicas served.  backend: "cpu"; "gpu" (docs/guide/gpu.md); or "interpreted": kernels by the
    ops' `evaluate` in NumPy, all else as "cpu" (docs/guide/interpreted.md).  devices_per_gpu: how many devices a GPU
    takes at most; by default the devices of a machine share its GPUs evenly.  inject: faults to inject, such as
    "kill:device=3,at=all-reduce.7" (docs/guide/fault_injection.md).  network: by which several hosts reach each other
    (docs/guide/clusters.md), by default DISTXLA_NETWORK.  Threads may share a cluster; calls run in turn.
    """

    _INTERNAL = frozenset({"call", "direct", "heap", "hosts", "issue", "loader", "memory", "queue", "resident_bytes"})
    _slices: Sequence[range] = ()  # of other processes, which have the arrays; as of Hosts

    def __init__(
        self,
        replicas: int = 1,
        partitions: int | None = None,
        *,
        address: str | None = None,
        devices_per_host: Sequence[int] | None = None,
        device_memory: int | str | None = None,
        devices_per_gpu: int | None = None,
        backend: str = "cpu",
        inject: Sequence[str] | Injection = (),
        network: str | None = None,
    ) -> None:
        self._stated_partitions = partitions
        self._counts = counts = checked_size(replicas, 1 if partitions is None else partitions)
        if not isinstance(address, str | None):
            raise ArgumentError(f"address: expected a string, HOST:PORT, found {address!r}")
        self._target = target_of_backend(backend)
        devices_per_host = checked_counts(devices_per_host, counts.devices)
        self.replicas, self.partitions, self.address = counts.replicas, counts.partitions, address
        self._compiler: ServerShare | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self.start_s, self._closed, self._owner = 0.0, False, os.getpid()
        self._lock = threading.RLock()
        self._queue = CallQueue(require_outside)
        self._host_calls = HostCalls()
        self._injection = injection_of(inject, counts.devices)
        between = self._injection.between_hosts if self._injection is not None else lambda hosts: ()
        memory, gpus = checked_memory(device_memory), gpu_sharing(self._target, devices_per_gpu)
        places = counts.devices, address, devices_per_host, self._closing, between, memory, gpus
        self.hosts = Hosts(*places, bool(self._slices), self._slices, network)
        self.loader: ProgramLoader | None = None
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
        return "starting" if self.loader is None else f"{self.devices} device{'s' * (self.devices > 1)} running"

    def __enter__(self) -> Cluster:
        with deferred_interrupt():  # otherwise no `close` would follow an interrupted start
            self.start()
        try:
            if not self.hosts.wait_joined(self._thread):
                self.wait_started()  # raises the error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._queue.interrupt()
            self._queue.take_unseen()
        self.close()

    @property
    def devices(self) -> int:
        return self._counts.devices

    @property
    def injected(self) -> tuple[Injected, ...]:
        """The injected faults, including those that were drawn at random, and which have happened so far."""
        return () if self._injection is None else self._injection.found

    @property
    def replicas_info(self) -> list[tuple[int, str, int]]:
        """(device, host, pid) of every replica; blocks until they are started."""
        self.wait_started()
        return [(identity.device, identity.host, identity.pid) for identity in self.hosts.identities]

    def start(self) -> Cluster:
        """Begin to start; returns at once, before Ray is initialised: `wait_started`, or entering, waits for that.

        ClusterError if it was started or closed before, OutOfMemoryError.
        """
        if self._thread is not None or self._closing.is_set():
            raise ClusterError("a cluster is started once")
        self.hosts.prepare()
        _open.add(self)
        self._compiler = ServerShare()
        thread = threading.Thread(target=self._start, name="distxla-start", daemon=True)
        self._thread = started_thread(thread, "the cluster could not be started")
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
        if (why := self._failure) is not None:
            raise ClusterError(f"the cluster could not be started: {type(why).__name__}: {why}") from why

    def close(self) -> None:
        """Take down everything that this cluster started; blocks until it is gone. Twice is fine.

        Calls under way end first, and a failure of theirs that no caller has got is raised in the end. Ctrl-C ends them
        at once. KeyboardInterrupt comes when all is gone; a second Ctrl-C interrupts, and `close` may be called again.
        """
        if self._owner != os.getpid():  # a forked child has its parent's handle, not its cluster
            return
        try:
            self._queue.drain()
        finally:
            self._take_down()
        if (error := self._queue.take_unseen()) is not None:
            raise error

    @deferred_interrupt()
    def _take_down(self) -> None:
        self._closing.set()  # before the lock: a thread that has it and waits for actors' answers gives up
        self._queue.close("the cluster is closed")
        self._host_calls.close()
        with self._lock:
            if self._closed:
                return
        # Nothing below is undone or left out when it is interrupted and called again.
        if self._thread is not None:
            self._thread.join()
        if self.loader is not None:
            self.loader.close()
        self.loader = None
        self.hosts.close()
        if self._compiler is not None:
            self._compiler.close()
        self._closed = True
        _open.discard(self)

    def _start(self) -> None:
        begin = clock.now()
        try:
            self.hosts.start()
            self.heap = Heap(self.hosts.budget.device_bytes, self.hosts.pages, headroom=self.hosts.headroom())
            self.loader = ProgramLoader(self.hosts, self.heap, self._counts, self._unload)
            self.direct = DirectCalls(self.hosts, self.loader, self._lock, is_possible=self._injection is None)
            self.loader.dispatcher.stop_reason = lambda: self._queue.stop_reason() or self._host_calls.failure
            if self._injection is not None:
                self._injection.connect_feeds(self.loader.streams)
            self.start_s = clock.now() - begin
        except BaseException as error:  # raised by `wait_started`
            self._failure = error

    # --- programs

    def compile(
        self,
        module: Module,
        devices: Iterable[int] | None = None,
        *,
        device_assignment: Sequence[Sequence[int]] | None = None,
        host_calls: Mapping[Any, Callable[..., Any]] | None = None,
        reduction_order: str | None = None,
        trace: bool = False,
        time_limit: float | None = None,
        donated: Iterable[int] = (),
        check: str | Iterable[str] = (),
    ) -> Executable:
        """Compile the module for this cluster; it is loaded on its devices when they are up.

        devices: flattened ids that will run it, all by default: a part of a run of the cluster's counts.
        device_assignment: for a program of its own counts, which may be fewer, a table [replicas][partitions] of the
        cluster's devices, in any order; ids in the program are then its own (docs/guide/device_assignment.md).
        host_calls: functions that run here when a device calls them, by number for JAX's callbacks, else by the target
        of a custom-call (docs/guide/host_calls.md).  reduction_order: "rank", "tree" or "ring", in which all-reduce and
        reduce-scatter combine values; by default as the text says, or rank.  trace: a `trace` shows each step.
        time_limit: seconds for checking and compiling.  donated: leaves of parameters in whose memory results may be
        computed.  check: "nan", "replication" or both, of each call (docs/guide/checked_runs.md).  Blocks. Raises
        ArgumentError for other counts, TimeLimitError, the verifier's and compiler's errors; gives a DistxlaWarning
        where a collective's groups have one device each.
        """
        if self._closing.is_set():
            raise ClusterError("the cluster is closed")
        if self._compiler is None:
            raise ClusterError(_NOT_STARTED)
        if not isinstance(module, Module):
            raise ArgumentError(f"compile takes a Module, as load and parse give it, found {type(module).__name__}")
        assigned = assignment_of(device_assignment, devices, self._counts)
        counts = assigned.counts
        partitions = counts.partitions if assigned.is_own else self._stated_partitions
        with within(time_limit), phase("partitioning"):
            whole = device_program(module, partitions, counts.replicas, available=counts.partitions)
        given, module = module, module if whole is None else whole.module
        assigned.require_counts(module)
        functions, checks = checked_host_calls(host_calls), checks_of(check)
        begin = clock.now()
        with within(time_limit):
            same_values, module, functions = with_same_values(checks, module, counts, functions)
            with phase("checking"):
                prepared = after_driver_steps(module, functions, reduction_order)
                require_compilable(module := prepared.module, counts, given=given)
            self.hosts.budget.require(Need(module), assigned.devices)
            with phase("compiling"):
                in_place = () if NAN in checks else in_place_pairs(module, donated)
                options = CompileOptions(traced=trace, in_place=in_place, watched=NAN in checks)
                program, cached = self._compiled(module, assigned, options)
            self.hosts.budget.require(Need.of(module, program), assigned.devices)
        known: dict[str, Any] = {"module": module, "targets": user_targets(module), "whole": whole, "traced": trace}
        found = Executable(self, program, assigned.devices, clock.now() - begin, cached, checks=checks, **known)
        found.same_values = same_values and same_values.bound(program.assignment, assigned.devices)
        found.host_calls = self._host_calls.bound(prepared.host_call_sites, functions, assigned.devices)
        return found

    def _compiled(
        self, module: Module, assigned: DeviceAssignment, options: CompileOptions
    ) -> tuple[CompiledProgram, bool]:
        """The program, and whether the cache on disk had it."""
        assert self._compiler is not None
        points = () if self._injection is None else self._injection.points(module, assigned.devices)
        # if it is not whole, its groups have members whose programs are compiled apart, with arrays anywhere
        apart = not assigned.is_whole
        through_host = apart or self.hosts.has_gpus_on_several(self._thread)
        options = replace(options, target=self._target, points=points, apart=apart, through_host=through_host)
        found, cached = compile_cached(self._compiler, module, assigned.counts, options)
        if self._injection is not None:
            self._injection.require_points(found, assigned.devices, points)
        return assigned.bind(found, self.devices), cached

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
        self.wait_started()
        if not 0 <= device < self.devices:
            raise ArgumentError(f"device {device}: the cluster has devices 0 to {self.devices - 1}")
        return put_array(self, value, device)

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
        loader = self.loader
        if loader is None:
            raise ClusterError("the cluster is closed")
        return loader.streams

    @property
    def queue(self) -> CallQueue:
        """The calls under way."""
        return self._queue

    def memory(self, device: int) -> DeviceMemory:
        """The device's memory as the driver reaches it."""
        return self.hosts.memory(device)

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
        outs: list[list[Row]] = []

        def place(executables: list[Executable]) -> list[Any]:
            kept = [executable.place_arguments(rows) for executable, (_, rows) in zip(executables, calls)]
            outs.extend(executable.place_results() for executable in executables)
            return [executables, kept, outs]

        with self._queue.reserved():
            self.issue([executable for executable, _ in calls], place, time_limit=time_limit, repeat=repeat)
        return outs

    def issue(
        self, given: list[Executable], place: CallAreaWriter, *, time_limit: float | None = None, repeat: int = 1
    ) -> None:
        """Run executables at once. place: writes their call areas, once they are loaded, and returns what must live
        until the call is over."""
        with self._lock:  # no loop here: an interrupt at the end of an iteration could leave the lock taken
            self._issue(given, place, time_limit, repeat)

    def _issue(self, given: list[Executable], place: CallAreaWriter, time_limit: float | None, repeat: int) -> None:
        if self.loader is None:
            self.wait_started()
        loader = self.loader
        if loader is None or self._closing.is_set():
            raise ClusterError("the cluster is closed")
        executables = in_common_order(given, self._counts, self._again)
        loader.dispatcher.settle(time_limit)
        if self._injection is not None:
            loader.inject(self._injection, executables)
        for executable in (one for one in executables if one.number is None):
            with phase("loading programs"):
                loader.load(executable)
        loader.channels.connect([(e.number or 0, e.program, e.devices) for e in executables])
        loader.communicators.await_others()
        kept = place(executables)
        begin_checks(executables, self.memory)
        numbers = {d: executable.number or 0 for executable in executables for d in executable.devices}
        called = {d: executable.host_calls for executable in executables for d in executable.devices}
        try:
            tracing = nullcontext() if self._trace is None else self._trace.call()
            with self._host_calls.during(loader.streams, called, time_limit), tracing:
                seconds = loader.dispatcher.call(numbers, repeat, time_limit)
        except BaseException as error:
            loader.dispatcher.keep(*kept)
            if self._injection is not None:
                self._injection.call_over(loader.dispatcher.aftermath(), error)
            raise
        for executable in given:
            executable.run_s = seconds
            executable.device_s = loader.dispatcher.device_seconds(executable.devices)
        if self._injection is not None:
            self._injection.call_over(loader.dispatcher.aftermath())
        end_checks(executables, self.memory)

    def _unload(self, loaded: Loaded) -> None:
        """In the unloader's thread: a program's last executable has gone."""
        with self._queue.reserved(), self._lock:
            if self.loader is not None and not self._closing.is_set():
                self.loader.unload(loaded)

    def trace(self) -> Trace:
        """Begin to record the devices' events, until the trace, a context manager, is left or closed; only one at a
        time. Blocks until the replicas serve.

            with cluster.trace() as trace:
                step(args)
            trace.write("step.json")
        """
        from distxla.runtime.calls.trace import Trace, rings_bytes

        self.wait_started()
        self._queue.forbid_direct()  # which no trace sees
        with self._lock:
            loader = self.loader
            if loader is None or self._closing.is_set():
                raise ClusterError("the cluster is closed")
            if self._trace is not None and self._trace.is_active:
                raise ClusterError("a trace is taken already")
            loader.dispatcher.settle(None)
            if self._rings is None:
                self._rings = self.hosts.local.control.carve(rings_bytes(self.devices))
            known = loader.dispatcher.programs, loader.dispatcher.modules
            self._trace = Trace(self.hosts, self._rings, *known, self._queue.drain)
            return self._trace

    def _again(self, old: Executable, module: Module) -> Executable:
        """The executable of a module that is the same in another order."""
        begin = clock.now()
        assigned = DeviceAssignment.of(old.program, old.devices)
        options = CompileOptions(traced=old.traced, in_place=old.program.in_place, watched=NAN in old.checks)
        program, cached = self._compiled(module, assigned, options)
        return old.again(program, module, clock.now() - begin, cached)

    def resident_bytes(self) -> list[int]:
        """Resident memory of each replica without its arenas."""
        self.wait_started()
        return self.hosts.ask([replica.resident_bytes.remote() for replica in self.hosts.replicas], 30)
