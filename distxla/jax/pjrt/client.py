"""The client: a cluster, and its devices."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from distxla.errors import ArgumentError, ClusterError, DistxlaError, UnsupportedOpError
from distxla.jax.partitioner.early_start import start_early
from distxla.jax.pjrt import handles, late
from distxla.jax.pjrt.devices import NAME, PLATFORM, Description, Device, Topology
from distxla.jax.pjrt.handles import CArray, CBytes, array_getter, bytes_getter, text
from distxla.jax.pjrt.plans import DirectIssuer
from distxla.jax.pjrt.table import STRUCTURES
from distxla.jax.private.backends import configured_devices
from distxla.lazy_dataclass import dataclass
from distxla.machine.heap import Heap
from distxla.machine.packages import installed_version
from distxla.runtime.checks.checks import checks_of
from distxla.runtime.cluster import Cluster

DEFAULT_DEVICES: Final = 8
_DEVICES: Final = "DISTXLA_DEVICES"
_JAX_DEVICES: Final = "JAX_NUM_CPU_DEVICES"
_MEMORY: Final = "DISTXLA_DEVICE_MEMORY"
_ADDRESS: Final = "DISTXLA_ADDRESS"
_BACKEND: Final = "DISTXLA_BACKEND"
_CHECK: Final = "DISTXLA_CHECK"
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
    """PJRT's client. Its cluster starts in the background; what needs the devices waits for it."""

    def __init__(self, settings: Settings) -> None:
        self.owner = os.getpid()
        self.checks = settings.checks
        self.cluster = Cluster(
            partitions=settings.devices,
            address=settings.address,
            device_memory=settings.device_memory,
            backend=settings.backend,
        )
        self.descriptions = [Description(k) for k in range(settings.devices)]
        self.devices = [Device(self, description) for description in self.descriptions]
        self.device_array = CArray(ctypes.c_void_p, [device.handle for device in self.devices])
        self.memory_array = CArray(ctypes.c_void_p, [m.handle for device in self.devices for m in device.memories])
        self.platform_name = CBytes(PLATFORM)
        self.platform_version = CBytes(f"{NAME} {installed_version('distxla') or 'of an unknown version'}")
        self.topology = Topology(self.descriptions, f"distxla, {settings.devices} devices")
        self._is_started = self._has_begun = False
        self._lock = threading.Lock()
        self._direct: DirectIssuer | None = None
        self.handle = handles.new(self)
        self.cluster.start()

    def started(self) -> Cluster:
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
        if begins:
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


class _Chosen:
    """settings: gives those of the next client."""

    settings: Callable[[], Settings] = staticmethod(settings_of_environment)


def use(settings: Callable[[], Settings]) -> None:
    """What clients are created with from now on, instead of what the environment says; called when one is."""
    _Chosen.settings = staticmethod(settings)


def _processes(args: Any) -> int:
    """How many processes of JAX there are, by the options that `jax.distributed` adds."""
    for number in range(args.num_options):
        place = args.create_options + number * ctypes.sizeof(STRUCTURES["NamedValue"])
        found = STRUCTURES["NamedValue"].from_address(place)
        if text(found.name, found.name_size) == "num_nodes":
            return int(found.value)
    return 1


def client_create(args: Any) -> None:
    if (count := _processes(args)) > 1:
        raise UnsupportedOpError(
            f"jax.distributed with {count} processes: distxla's devices belong to one process of JAX, which reaches "
            "those of all hosts by DISTXLA_ADDRESS"
        )
    client = Client(_Chosen.settings())
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
    args.process_index = 0


def _device(client: Client, number: int) -> int:
    if not 0 <= number < len(client.devices):
        raise ArgumentError(f"device {number}: the cluster has devices 0 to {len(client.devices) - 1}")
    return client.devices[number].handle


def lookup_device(args: Any) -> None:
    args.device = _device(handles.of(args.client), args.id)


def lookup_addressable_device(args: Any) -> None:
    args.addressable_device = _device(handles.of(args.client), args.local_hardware_id)


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
    "Client_AddressableDevices": array_getter("client", "device_array", "addressable_devices"),
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
