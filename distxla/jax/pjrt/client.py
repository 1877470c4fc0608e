"""The client: a cluster, and its devices."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from distxla.errors import ArgumentError, ClusterError, DistxlaError
from distxla.jax.partitioner.early_start import start_early
from distxla.jax.pjrt import handles, late
from distxla.jax.pjrt.devices import NAME, PLATFORM, Description, Device, Topology
from distxla.jax.pjrt.handles import CArray, CBytes, array_getter, bytes_getter, text
from distxla.jax.pjrt.plans import DirectIssuer
from distxla.jax.pjrt.table import STRUCTURES
from distxla.jax.private.backends import configured_devices, tell_lines_of_calls
from distxla.jax.private.coordination import CoordinationStore
from distxla.jax.processes.world import KeyValueStore, World
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Heap
from distxla.machine.packages import installed_version
from distxla.runtime.arrays.device_cluster import DeviceCluster
from distxla.runtime.checks.checks import checks_of

if TYPE_CHECKING:
    from distxla.jax.pjrt.compilers import Compiler
    from distxla.jax.processes.attached import AttachedCluster
    from distxla.jax.processes.launches import Launches

DEFAULT_DEVICES: Final = 8
_DEVICES: Final = "DISTXLA_DEVICES"
_JAX_DEVICES: Final = "JAX_NUM_CPU_DEVICES"
_MEMORY: Final = "DISTXLA_DEVICE_MEMORY"
_ADDRESS: Final = "DISTXLA_ADDRESS"
_BACKEND: Final = "DISTXLA_BACKEND"
_CHECK: Final = "DISTXLA_CHECK"
_STRING, _NUMBER = 0, 1  # PJRT_NamedValue_Type
_generations: Final = count()  # of clients: JAX makes another one after clear_backends
_STALL_LIMIT: Final = "DISTXLA_STALL_LIMIT"
_FLAG: Final = "--xla_force_host_platform_device_count="


@dataclass(frozen=True)
class Settings:
    """What the client's cluster is.

    devices: their number.  address: the Ray cluster to join, HOST:PORT; None for an embedded one.  device_memory: bytes
    of each device's memory, also as "2GiB"; None for the default of `Cluster`.  backend: as of `Cluster`.  checks: of
    all programs, as of `Cluster.compile`.
    """

    devices: int
    address: str | None = None
    device_memory: int | str | None = None
    backend: str = "cpu"
    checks: frozenset[str] = frozenset()


def devices_of_environment() -> int:
    """DISTXLA_DEVICES, else jax_num_cpu_devices, else JAX_NUM_CPU_DEVICES, else the count in XLA_FLAGS, else 8.
    ArgumentError for a count that is none."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith(_FLAG)]
    jaxs, configured = os.environ.get(_JAX_DEVICES, ""), configured_devices()
    given = {
        _DEVICES: os.environ.get(_DEVICES, ""),
        "jax_num_cpu_devices": "" if configured is None else str(configured),
        _JAX_DEVICES: "" if jaxs == "-1" else jaxs,  # JAX's word for none
        "XLA_FLAGS": flags[-1].removeprefix(_FLAG) if flags else "",
    }
    for name, value in given.items():
        if value:
            if not value.isdecimal() or not int(value):
                raise ArgumentError(f"{name}: expected a number of devices, found {value!r}")
            return int(value)
    return DEFAULT_DEVICES


def settings_of_environment() -> Settings:
    """`devices_of_environment`, DISTXLA_ADDRESS, DISTXLA_DEVICE_MEMORY, DISTXLA_BACKEND and DISTXLA_CHECK."""
    address, memory, backend = (os.environ.get(name) or None for name in (_ADDRESS, _MEMORY, _BACKEND))
    return Settings(devices_of_environment(), address, memory, backend or "cpu", checks_of_environment())


def checks_of_environment() -> frozenset[str]:
    """The names in DISTXLA_CHECK, with commas between. ArgumentError for others."""
    return checks_of(os.environ.get(_CHECK) or None, _CHECK)


class Client:
    """PJRT's client. Its cluster starts in the background; what needs the devices waits for it.

    devices: of all processes of JAX, by id.  here: those of this process.  compiler: of its programs.  launches: tells
    other processes of calls; None where there are none.
    """

    def __init__(self, settings: Settings, world: World, store: KeyValueStore | None = None) -> None:
        """settings: of this process's devices.  store: that of the processes, where there are several."""
        self.owner = os.getpid()
        self.checks = settings.checks
        self.world = world
        self.cluster: DeviceCluster
        self.compiler: Compiler
        self.launches: Launches | None = None
        if store is None:
            self.cluster, self.compiler = _alone(settings)
        else:
            self.cluster = attached = _attached(settings, world, store)
            self.compiler, self.launches = attached.compiler, attached.launches
        self.descriptions = [Description(k, world.process_of(k)) for k in range(world.devices)]
        self.devices = [Device(self, description) for description in self.descriptions]
        mine = world.slice_of(world.process)
        for device in self.devices:
            device.set_local(device.id - mine.start if device.id in mine else None)
        self.here = [self.devices[k] for k in mine]
        self.device_array = CArray(ctypes.c_void_p, [device.handle for device in self.devices])
        self.here_array = CArray(ctypes.c_void_p, [device.handle for device in self.here])
        self.memory_array = CArray(ctypes.c_void_p, [m.handle for device in self.here for m in device.memories])
        self.platform_name = CBytes(PLATFORM)
        self.platform_version = CBytes(f"{NAME} {installed_version('distxla') or 'of an unknown version'}")
        self.topology = Topology(self.descriptions, f"distxla, {world.devices} devices")
        self._is_started = self._has_begun = False
        self._lock = threading.Lock()
        self._direct: DirectIssuer | None = None
        self.handle = handles.new(self)
        self.cluster.start()

    def is_here(self, device: int) -> bool:
        """Whether it is a device of this process."""
        return device in self.world.slice_of(self.world.process)

    def started(self) -> DeviceCluster:
        """The cluster, once its devices serve; ClusterError where they could not be started, or in a forked child."""
        self.require_owner()
        if not self._is_started:
            if late.is_late():
                raise InterruptedError("a signal handler has raised while the devices started")
            self._begin()
            self.cluster.wait_started()
            with self._lock:
                if self._direct is None:
                    self._direct = DirectIssuer(self.cluster)
                    for device in self.devices:
                        device.set_gate(self._direct.gate)
            self._is_started = True
        return self.cluster

    def _begin(self) -> None:
        """At the first use of a device, not before: who only asks which devices there are needs nothing else."""
        with self._lock:
            begins, self._has_begun = not self._has_begun, True
        if begins and self.launches is None:  # else the owner starts what the programs need, once for all processes
            start_early()

    def direct(self) -> DirectIssuer:
        """The cluster's native calls, once its devices serve."""
        assert self._direct is not None
        return self._direct

    def require_owner(self) -> None:
        """ClusterError in a forked child of the client's process."""
        if os.getpid() != self.owner:
            raise ClusterError(
                f"the devices belong to process {self.owner}, which has forked: start processes that use JAX by "
                'multiprocessing\'s "spawn"'
            )

    def heap(self) -> Heap:
        """That of the devices' memories, without blocks that are kept to be used again."""
        cluster = self.started()
        self.direct().trim()
        return cluster.heap

    def close(self) -> None:
        """End the cluster; in a forked child nothing. Raises the failure of a call that nobody has waited for."""
        try:
            self.cluster.close()
        finally:
            if self._direct is not None and os.getpid() == self.owner:
                self._direct.stop()


def _alone(settings: Settings) -> tuple[DeviceCluster, Compiler]:
    """The cluster of one process."""
    from distxla.jax.pjrt.compilers import LocalCompiler  # a quarter of what is loaded, which several do not need
    from distxla.runtime.cluster import Cluster

    cluster = Cluster(
        partitions=settings.devices,
        address=settings.address,
        device_memory=settings.device_memory,
        backend=settings.backend,
    )
    return cluster, LocalCompiler(cluster)


def _attached(settings: Settings, world: World, store: KeyValueStore) -> AttachedCluster:
    """The cluster that several processes share."""
    from distxla.jax.processes.attached import AttachedCluster  # which one process alone does not load
    from distxla.jax.processes.places import PACKAGES
    from distxla.jax.processes.spawn import OwnerSettings

    tell_lines_of_calls(PACKAGES)
    checks = tuple(sorted(settings.checks))
    given = settings.devices, settings.address, settings.device_memory, settings.backend, checks
    return AttachedCluster(world, OwnerSettings(*given, _stall_limit()), store)


def _stall_limit() -> float | None:
    """DISTXLA_STALL_LIMIT: seconds after which a process that others wait for counts as failed; none by default.
    ArgumentError for another text."""
    told = os.environ.get(_STALL_LIMIT) or None
    try:
        found = None if told is None else float(told)
    except ValueError:
        found = -1.0
    if found is not None and not 0 < found < float("inf"):
        raise ArgumentError(f"{_STALL_LIMIT}: expected a number of seconds above 0, found {told!r}")
    return found


class _Chosen:
    """settings: gives those of the next client."""

    settings: Callable[[], Settings] = staticmethod(settings_of_environment)


def use(settings: Callable[[], Settings]) -> None:
    """What clients are created with from now on, instead of what the environment says; called when one is."""
    _Chosen.settings = staticmethod(settings)


def options_of(args: Any) -> dict[str, int | str]:
    """The options of Client_Create that are numbers or strings: `jax.distributed` adds node_id and num_nodes."""
    named = STRUCTURES["NamedValue"]
    found: dict[str, int | str] = {}
    for number in range(args.num_options):
        option = named.from_address(args.create_options + number * ctypes.sizeof(named))
        name = text(option.name, option.name_size)
        if option.type == _NUMBER:
            found[name] = int(option.value)
        elif option.type == _STRING:
            found[name] = text(option.value, option.value_size)
    return found


def client_create(args: Any) -> None:
    """Client_Create."""
    settings, options = _Chosen.settings(), options_of(args)
    process, processes = int(options.get("node_id", 0)), int(options.get("num_nodes", 1))
    world = World(process, processes, settings.devices, next(_generations) if processes > 1 else 0)
    store = CoordinationStore() if processes > 1 else None
    client = Client(settings, world, store)
    args.client = client.handle


def client_destroy(args: Any) -> None:
    client = handles.find(args.client)
    if client is not None:
        try:
            client.close()
        except DistxlaError as failure:  # C++ ends the process where its destructor gets an error
            print(f"distxla: a call failed whose result was never awaited: {failure}", file=sys.stderr)
        finally:
            handles.release(args.client)


def process_index(args: Any) -> None:
    args.process_index = handles.of(args.client).world.process


def _device(client: Client, number: int) -> int:
    if not 0 <= number < len(client.devices):
        raise ArgumentError(f"device {number}: the cluster has devices 0 to {len(client.devices) - 1}")
    return client.devices[number].handle


def lookup_device(args: Any) -> None:
    args.device = _device(handles.of(args.client), args.id)


def lookup_addressable_device(args: Any) -> None:
    here = handles.of(args.client).here
    if not 0 <= args.local_hardware_id < len(here):
        raise ArgumentError(f"local device {args.local_hardware_id}: this process has devices 0 to {len(here) - 1}")
    args.addressable_device = here[args.local_hardware_id].handle


def default_assignment(args: Any) -> None:
    client = handles.of(args.client)
    count = args.num_replicas * args.num_partitions
    if count > len(client.devices) or count > args.default_assignment_size:
        raise ArgumentError(f"{count} devices are wanted, the cluster has {len(client.devices)}")
    place = (ctypes.c_int32 * count).from_address(args.default_assignment)
    place[:] = range(count)


def client_topology(args: Any) -> None:
    args.topology = handles.of(args.client).topology.handle


def topology_create(args: Any) -> None:
    """A topology by itself, of as many devices as a client would have."""
    settings = _Chosen.settings()
    descriptions = [Description(k) for k in range(settings.devices)]
    args.topology = Topology(descriptions, f"distxla, {settings.devices} devices").handle


ENTRIES: Final = {
    "Client_AddressableDevices": array_getter("client", "here_array", "addressable_devices"),
    "Client_AddressableMemories": array_getter("client", "memory_array", "addressable_memories"),
    "Client_Create": client_create,
    "Client_DefaultDeviceAssignment": default_assignment,
    "Client_Destroy": client_destroy,
    "Client_Devices": array_getter("client", "device_array", "devices"),
    "Client_LookupAddressableDevice": lookup_addressable_device,
    "Client_LookupDevice": lookup_device,
    "Client_PlatformName": bytes_getter("client", "platform_name"),
    "Client_PlatformVersion": bytes_getter("client", "platform_version"),
    "Client_ProcessIndex": process_index,
    "Client_TopologyDescription": client_topology,
    "TopologyDescription_Create": topology_create,
}

__all__ = ["ENTRIES", "Client", "Settings", "devices_of_environment", "settings_of_environment", "use"]
