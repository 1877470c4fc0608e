"""The user's handle on a set of replicas."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import operator
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distxla.codegen.program import CompiledProgram
from distxla.collectives.control_block import MOST_DEVICES
from distxla.errors import ArgumentError, ClusterError, DistxlaError, ReplicaLostError
from distxla.ir.element_type import element_type_of
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.custom_calls.user import user_targets
from distxla.passes.manual_partitions import has_manual_regions, per_device
from distxla.passes.verify import require_executable, verify_module
from distxla.runtime import embedded_ray
from distxla.runtime.cache import compile_cached
from distxla.runtime.communicators import Communicators
from distxla.runtime.compile_server import CompileServer
from distxla.runtime.device_array import DeviceArray
from distxla.runtime.dispatch import Dispatcher
from distxla.runtime.executable import Executable, Row, as_argument, expand
from distxla.runtime.memory import Block, ControlBlock, Heap, Segment, memory_bytes
from distxla.runtime.release import release_after_loss
from distxla.runtime.replica import Attachment, Identity, Placement, Replica
from distxla.runtime.serve import support_program
from distxla.runtime.watch import Watch

if TYPE_CHECKING:
    from distxla.runtime.routines import RoutineFailure

ATTACH_LIMIT_S = 120.0
_open: weakref.WeakSet[Cluster] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for cluster in list(_open):
        cluster.close()


class Cluster:
    """replicas x partitions devices, each a Ray actor in a process of its own on this host.

        with Cluster(replicas=8) as cluster:
            step = cluster.compile(module)
            outs = step(args)

    Entering begins to start the replicas in the background; `compile` needs none of them, so both overlap, and the
    first call waits for the rest. `wait_started` waits and raises what went wrong. Leaving takes everything down that
    the cluster started.

    address: a Ray cluster to join whose node on this host will hold the replicas; None for an embedded Ray of our own
    (a Ray that this process has joined already is used instead).  start_s: seconds from `start` until all replicas
    served.  Methods may be called from several threads; calls run one after another.
    """

    def __init__(
        self, replicas: int = 1, partitions: int = 1, *, address: str | None = None, backend: str = "cpu"
    ) -> None:
        counts = f"replicas={replicas!r}, partitions={partitions!r}"
        try:
            replicas, partitions = operator.index(replicas), operator.index(partitions)
        except TypeError as error:
            raise ArgumentError(f"a cluster's counts are integers, found {counts}") from error
        if replicas < 1 or partitions < 1:
            raise ArgumentError(f"a cluster needs at least one device, found {counts}")
        if replicas * partitions > MOST_DEVICES:
            raise ArgumentError(f"a cluster has at most {MOST_DEVICES} devices, found {counts}")
        if not isinstance(address, str | None):
            raise ArgumentError(f"address: expected a string, HOST:PORT, found {address!r}")
        if backend != "cpu":
            raise ArgumentError(f"backend {backend!r}: a cluster's replicas run on 'cpu'")
        self.replicas = replicas
        self.partitions = partitions
        self.address = address
        self.start_s = 0.0
        self.identities: list[Identity] = []
        self._actors: list[Any] = []
        self._memories: list[Segment] = []
        self._control: ControlBlock | None = None
        self._watch: Watch | None = None
        self._dispatcher: Dispatcher | None = None
        self._server: CompileServer | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._holds_ray = False
        self._closing = threading.Event()
        self._closed = False
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._arena: Block | None = None
        self._numbers = 0
        self._communicators: Communicators | None = None

    # --- life

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def devices(self) -> int:
        return self.replicas * self.partitions

    @property
    def replicas_info(self) -> list[tuple[int, str, int]]:
        """(device, host, pid) of every replica; blocks until they are started."""
        self.wait_started()
        return [(identity.device, identity.host, identity.pid) for identity in self.identities]

    def start(self) -> Cluster:
        """Begin to start; returns at once. ClusterError if the cluster was started or closed before."""
        if self._thread is not None or self._closing.is_set():
            raise ClusterError("a cluster is started once")
        _open.add(self)
        self._server = CompileServer()
        self._thread = threading.Thread(target=self._start, name="distxla-start", daemon=True)
        self._thread.start()
        return self

    def wait_started(self) -> None:
        """Block until all replicas serve; raises ClusterError where they could not be started."""
        if self._thread is None:
            raise ClusterError("the cluster is not started: use `with Cluster(...)`")
        while self._thread.is_alive():
            self._thread.join(0.05)  # in slices: Ctrl-C
        if self._closing.is_set():
            raise ClusterError("the cluster is closed")
        if isinstance(self._failure, DistxlaError):
            raise self._failure
        if self._failure is not None:
            raise ClusterError(f"the cluster could not be started: {self._failure}") from self._failure

    def close(self) -> None:
        """Take down everything that this cluster started; blocks until it is gone. Twice is fine."""
        with self._lock:
            if self._closed or self._owner != os.getpid():  # a forked child has its parent's handle, not its cluster
                return
            self._closing.set()
        # Nothing below is undone or left out when a Ctrl-C interrupts it and it is called again.
        if self._thread is not None:
            self._thread.join()
        if self._dispatcher is not None and self._watch is not None and not self._watch.lost:
            with contextlib.suppress(DistxlaError):
                self._dispatcher.stop()
        self._leave()
        self._closed = True
        _open.discard(self)

    def _start(self) -> None:
        begin = time.perf_counter()
        try:
            self._make_memory()
            self._holds_ray = embedded_ray.acquire(self.devices, self.address)
            self._start_replicas()
            self.start_s = time.perf_counter() - begin
        except BaseException as error:  # handed to whoever waits for the start
            self._failure = error

    def _make_memory(self) -> None:
        self._control = ControlBlock.create(self.devices)
        size = memory_bytes()
        for device in range(self.devices):
            self._memories.append(Segment.create(f"distxla-device-{device}", size))
        self.heap = Heap(size, self._memories)

    def _start_replicas(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert self._control is not None
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here)(Replica)
        self._actors = [actor.remote(device) for device in range(self.devices)]
        support = support_program()
        attachment = Attachment(
            os.getpid(),
            self._control.segment.descriptor,
            tuple(memory.descriptor for memory in self._memories),
            self._memories[0].size,
            self.replicas,
            self.partitions,
        )
        pending = [replica.attach.remote(attachment, ray.put(support)) for replica in self._actors]
        self.identities = self._ask(pending, ATTACH_LIMIT_S)
        self._watch = Watch(self.identities, self._on_loss)
        self._communicators = Communicators(self._control)
        self._dispatcher = Dispatcher(self._control, support, self._watch, self._communicators, self._routine_failure)

    def _ask(self, pending: list[Any], seconds: float) -> list[Any]:
        """Answers of replicas; their errors as ours. Ends early when the cluster is closed."""
        import ray

        end = time.monotonic() + seconds
        try:
            while True:
                done, rest = ray.wait(pending, num_returns=len(pending), timeout=0.2)
                if not rest:
                    return list(ray.get(pending))
                if self._closing.is_set():
                    raise ClusterError("the cluster is closed")
                if time.monotonic() > end:
                    raise ClusterError(f"{len(rest)} of {len(pending)} replicas did not answer within {seconds:g} s")
                if done:
                    ray.get(done)  # raises an error at once, without waiting for the others
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, DistxlaError) else None
            raise cause or ClusterError(f"a replica failed: {error.cause}") from error
        except ray.exceptions.RayActorError as error:
            raise ReplicaLostError(f"a replica ended: {' '.join(str(error).split())[:500]}") from error

    def _on_loss(self, device: int) -> None:
        """In the watch's thread: make every wait of the host return, and the driver's."""
        if self._control is not None and not self._closing.is_set():
            release_after_loss(self._control, device)

    def _leave(self) -> None:
        if self._actors:
            import ray

            if ray.is_initialized():
                for replica in self._actors:
                    with contextlib.suppress(ray.exceptions.RayError, ValueError):
                        ray.kill(replica)
        self._actors = []
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._dispatcher is not None:
            self._dispatcher.close()
            self._dispatcher = None
        if self._holds_ray:
            self._holds_ray = False
            embedded_ray.release()
        if self._server is not None:
            self._server.close()
        for memory in self._memories:
            memory.close()
        if self._control is not None:
            self._control.close()
        self._memories, self._control = [], None

    # --- programs

    def compile(self, module: Module, devices: Iterable[int] | None = None) -> Executable:
        """Compile the module for this cluster; it is loaded on its devices when they are up.

        devices: flattened ids that will run it, all by default.  Blocks while compiling. Raises ArgumentError where the
        module's counts are not the cluster's, and the verifier's and the compiler's errors.
        """
        if self._server is None or self._closing.is_set():
            raise ClusterError("the cluster is not open")
        if not isinstance(module, Module):
            raise ArgumentError(f"compile takes a Module, as load and parse give it, found {type(module).__name__}")
        whole = None
        if has_manual_regions(module):
            verify_module(module)
            whole = per_device(module, self.partitions)
            module = module if whole is None else whole.module
        for name, wanted, found in (
            ("replica_count", self.replicas, module.replica_count),
            ("num_partitions", self.partitions, module.num_partitions),
        ):
            if found is not None and found != wanted:
                raise ArgumentError(f"module {module.name} has {name}={found}, the cluster {wanted}")
        chosen = tuple(range(self.devices)) if devices is None else tuple(devices)
        if not chosen or any(not 0 <= d < self.devices for d in chosen):
            raise ArgumentError(f"devices {list(chosen)}: the cluster has devices 0 to {self.devices - 1}")
        begin = time.perf_counter()
        verify_module(module)
        require_executable(module)
        targets = user_targets(module)
        program, cached = compile_cached(self._server, module, self.replicas, self.partitions)
        seconds = time.perf_counter() - begin
        return Executable(self, program, chosen, seconds, cached, module=module, targets=targets, whole=whole)

    def adopt(self, program: CompiledProgram, devices: Iterable[int] | None = None) -> Executable:
        """An executable of a program that was compiled elsewhere, for this cluster's counts."""
        chosen = tuple(range(self.devices)) if devices is None else tuple(devices)
        return Executable(self, program, chosen, 0.0, False)

    def run(
        self,
        programs: Mapping[Any, Module | Executable],
        args: Mapping[int, Sequence[Any]] | None = None,
        *,
        time_limit: float | None = None,
    ) -> dict[int, Row]:
        """Run several programs at once, each on its own devices: {range(0, 4): producer, range(4, 8): consumer}.

        args: the arguments of each device, by flattened id; devices that are missing take none. Returns the result
        leaves of each device. Blocks; raises as `compile` and as calling an Executable do.
        """
        calls: list[tuple[Executable, list[Sequence[Any]]]] = []
        for devices, module in expand(programs):
            executable = module if isinstance(module, Executable) else self.compile(module, devices)
            if executable.devices != devices:
                raise ArgumentError(f"{executable} was compiled for other devices than {list(devices)}")
            calls.append((executable, [list((args or {}).get(device, ())) for device in devices]))
        outs = self.call(calls, time_limit=time_limit)
        return {
            device: row for (executable, _), rows in zip(calls, outs) for device, row in zip(executable.devices, rows)
        }

    def put(self, value: Any, device: int) -> DeviceArray:
        """Copy a NumPy array (or what np.asarray takes) to a device."""
        import numpy as np

        self.wait_started()
        if not 0 <= device < self.devices:
            raise ArgumentError(f"device {device}: the cluster has devices 0 to {self.devices - 1}")
        array = np.asarray(value)
        try:
            shape = Shape(element_type_of(array.dtype), array.shape)
        except (KeyError, TypeError):
            raise ArgumentError(f"no element type holds values of {array.dtype}") from None
        block = self.heap.allocate(array.nbytes)
        memory = self._memories[device]
        memory.bytes[block.offset : block.offset + array.nbytes] = as_argument(array, shape, 0, device)
        return DeviceArray(memory, block, block.offset, device, shape)

    def memory(self, device: int) -> Segment:
        """The device's memory as the driver maps it."""
        return self._memories[device]

    def call(
        self,
        calls: list[tuple[Executable, list[Sequence[Any]]]],
        *,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> list[list[Row]]:
        """Run executables at once, each with its rows of arguments by device; what `Executable.__call__` is made of."""
        if repeat < 1:
            raise ArgumentError(f"repeat: expected at least 1, found {repeat}")
        with self._lock:
            for executable, _ in calls:
                if executable.number is None:
                    self._load(executable)
            if self._dispatcher is None or self._closing.is_set():
                raise ClusterError("the cluster is closed")
            kept = [executable.place_arguments(rows) for executable, rows in calls]
            outs = [executable.place_results() for executable, _ in calls]
            numbers = {d: executable.number or 0 for executable, _ in calls for d in executable.devices}
            seconds = self._dispatcher.call(numbers, repeat, time_limit)
            for executable, _ in calls:
                executable.run_s = seconds
                executable.device_s = self._dispatcher.device_seconds(executable.devices)
            del kept
        return outs

    # --- loading

    def _load(self, executable: Executable) -> None:
        """Give the program its places and load it on its devices; once."""
        import numpy as np
        import ray

        self.wait_started()
        assert self._dispatcher is not None
        assert self._control is not None
        assert self._communicators is not None
        begin = time.perf_counter()
        program = executable.program
        if program.replicas != self.replicas or program.partitions != self.partitions:
            raise ArgumentError(
                f"{program.name} was compiled for {program.replicas} x {program.partitions} devices, "
                f"the cluster has {self.replicas} x {self.partitions}"
            )
        if self._arena is None or self._arena.size < program.arena_bytes:
            self._arena = self.heap.allocate(program.arena_bytes)  # programs never run at once on one device
        number, self._numbers = self._numbers, self._numbers + 1
        count = len(executable.parameters) + len(executable.results)
        area = self._control.carve(8 * max(1, count) * len(executable.devices))
        reference = ray.put(dataclasses.replace(program, steps=()))  # those are for reports
        routines = None
        if executable.targets:
            from distxla.runtime.routines import pack

            routines = ray.put(pack(executable.targets))
        pending = []
        for row, device in enumerate(executable.devices):
            begins = area + 8 * count * row
            placement = Placement(
                number,
                self._arena.offset,
                begins,
                begins + 8 * len(executable.parameters),
                tuple(self._communicators.place(spec, device) for spec in program.communicators),
            )
            pending.append(self._actors[device].load.remote(reference, placement, routines))
        self._ask(pending, ATTACH_LIMIT_S)
        words = np.frombuffer(self._control.segment.bytes, np.uint64)
        executable.call_area = words[area // 8 : area // 8 + count * len(executable.devices)].reshape(
            len(executable.devices), count
        )
        executable.arena = self._arena
        executable.number = number
        self._dispatcher.programs[number] = program
        if executable.module is not None:
            self._dispatcher.modules[number] = executable.module
        executable.load_s = time.perf_counter() - begin

    def _routine_failure(self, device: int) -> RoutineFailure | None:
        """What a device knows of the Python routine that failed on it."""
        found: list[RoutineFailure | None] = self._ask([self._actors[device].routine_failure.remote()], 30)
        return found[0]

    def resident_bytes(self) -> list[int]:
        """Resident memory of each replica without its arenas."""
        self.wait_started()
        return self._ask([replica.resident_bytes.remote() for replica in self._actors], 30)
