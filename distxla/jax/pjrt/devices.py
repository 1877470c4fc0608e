"""Devices, their memories and descriptions, and the topology, which is what they all are together."""

from __future__ import annotations

import ctypes
import hashlib
from typing import TYPE_CHECKING, Any, Final, Protocol

from distxla.jax.pjrt import handles
from distxla.jax.pjrt.handles import NOTHING_TO_DELETE, CArray, CBytes, array_getter, bytes_getter, serializer
from distxla.jax.pjrt.table import RECORDS
from distxla.machine.segments import Segment

if TYPE_CHECKING:
    from distxla.machine.heap import Heap
    from distxla.runtime.arrays.call_queue import PendingCall
    from distxla.runtime.arrays.device_cluster import DeviceCluster

PLATFORM: Final = "cpu"
NAME: Final = "distxla"  # with which the platform's version begins: that tells it from JAX's own
OWN: Final = "jax_cpu"  # the name that JAX's own CPU client has beside the plugin
_KIND: Final = CBytes("cpu")
MEMORY_KINDS: Final = {name: CBytes(name) for name in ("device", "pinned_host", "unpinned_host")}
"""Of each device, as XLA's CPUs have them: the first is the default. All of them are the device's one memory."""


def is_ours(platform_version: str) -> bool:
    """Whether a platform with this version, as JAX gives it, is the plugin's. Its first line may be of JAX's own."""
    return any(line.startswith(NAME) for line in platform_version.splitlines())


class NativeCalls(Protocol):
    """The parts of a cluster's native calls that buffers use. gate: the address of their state."""

    gate: int

    def end_native(self, number: int) -> None:
        """Have the queue end this call, unless it has ended."""

    def pending(self, number: int) -> PendingCall | None:
        """The call with this number, which native code does not end; None where it has ended well."""

    def hold(self, thing: object) -> None:
        """Keep memory of which Python has the last reference until no native call uses it."""


class Owner(Protocol):
    """The parts of a client that devices use."""

    cluster: DeviceCluster

    def started(self) -> DeviceCluster:
        """The cluster once its devices serve."""

    def direct(self) -> NativeCalls:
        """The cluster's native calls, once its devices serve."""

    def heap(self) -> Heap:
        """That of the devices' memories."""


class Memory:
    """A memory of a device. device: whose it is.  kind: number in MEMORY_KINDS."""

    def __init__(self, device: Device, kind: int) -> None:
        self.device = device
        name, text = list(MEMORY_KINDS.items())[kind]
        self._text = CBytes(f"{name if kind else ''} memory of device {device.id}".strip())
        self.devices = CArray(ctypes.c_void_p, [device.handle])
        number = device.id * len(MEMORY_KINDS) + kind
        record = RECORDS["Memory"](None, number, kind, text.address, text.size, self._text.address, self._text.size)
        self.handle = handles.bind(self, record)


class Description:
    """What a device is. id: flattened.  process: of JAX, whose device it is."""

    def __init__(self, device_id: int, process: int = 0) -> None:
        self.id = device_id
        self._text = CBytes(f"distxla:{device_id}")
        record = RECORDS["DeviceDescription"](
            None, device_id, process, _KIND.address, _KIND.size, self._text.address, self._text.size
        )
        self.handle = handles.bind(self, record)


class Device:
    """A device of the cluster. id: flattened.  memories: by number of their kind."""

    def __init__(self, client: Owner, description: Description) -> None:
        self.client = client
        self.description = description
        self.id = description.id
        self._record = RECORDS["Device"](None, description.handle)
        self.handle = handles.bind(self, self._record)
        self.memories = tuple(Memory(self, kind) for kind in range(len(MEMORY_KINDS)))
        self.memory_array = CArray(ctypes.c_void_p, [memory.handle for memory in self.memories])
        self._record.memory = self.memories[0].handle
        self._record.local_hardware_id = self.id
        self._record.is_addressable = True
        self._address: int | None = None

    def set_local(self, ordinal: int | None) -> None:
        """Which of its process's devices it is; None for one of another process."""
        self._record.is_addressable = ordinal is not None
        self._record.local_hardware_id = -1 if ordinal is None else ordinal

    def set_gate(self, gate: int) -> None:
        """Where native code finds the state of the cluster's calls."""
        self._record.gate = gate

    def address(self) -> int | None:
        """Where this process sees the device's memory, which is there; None for a device of another host."""
        if self._address is None:
            memory = self.client.cluster.memory(self.id)
            self._address = memory.address if isinstance(memory, Segment) else None
        return self._address


class Topology:
    """Devices without a cluster. platform_version: as the client has it."""

    def __init__(self, descriptions: list[Description], platform_version: str) -> None:
        self.descriptions = descriptions
        self.array = CArray(ctypes.c_void_p, [description.handle for description in descriptions])
        self.platform_name = CBytes(PLATFORM)
        self.platform_version = CBytes(platform_version)
        self.serialized = CBytes(f"distxla topology 1, {len(descriptions)} devices")
        self.handle = handles.new(self)


def description_attributes(args: Any) -> None:
    args.attributes, args.num_attributes = None, 0


def device_attributes(args: Any) -> None:
    args.attributes, args.num_attributes = None, 0
    args.device_attributes, args.attributes_deleter = args.device, NOTHING_TO_DELETE


def memory_stats(args: Any) -> None:
    heap = handles.of(args.device).client.heap()
    use = heap.use()
    args.bytes_in_use = use.used
    found = {
        "peak_bytes_in_use": use.peak,
        "num_allocs": use.blocks,
        "largest_alloc_size": use.largest,
        "bytes_limit": heap.size,
        "bytes_reserved": 0,
        "peak_bytes_reserved": 0,
        "bytes_reservable_limit": heap.size,
        "largest_free_block_bytes": use.largest_free,
    }
    for name, value in found.items():
        setattr(args, name, value)
        setattr(args, f"{name}_is_set", True)
    args.pool_bytes_is_set = args.peak_pool_bytes_is_set = False


def clear_memory_stats(args: Any) -> None:
    handles.of(args.device).client.heap().forget_use()


def topology_attributes(args: Any) -> None:
    args.attributes, args.num_attributes = None, 0


def topology_fingerprint(args: Any) -> None:
    content = ctypes.string_at(handles.of(args.topology).serialized.address)
    args.fingerprint = int.from_bytes(hashlib.sha256(content).digest()[:8], "little")


def topology_destroy(args: Any) -> None:
    """The client keeps it."""


ENTRIES: Final = {
    "DeviceDescription_Attributes": description_attributes,
    "Device_AddressableMemories": array_getter("device", "memory_array", "memories"),
    "Device_ClearMemoryStats": clear_memory_stats,
    "Device_GetAttributes": device_attributes,
    "Device_MemoryStats": memory_stats,
    "Memory_AddressableByDevices": array_getter("memory", "devices", "devices"),
    "TopologyDescription_Attributes": topology_attributes,
    "TopologyDescription_Destroy": topology_destroy,
    "TopologyDescription_Fingerprint": topology_fingerprint,
    "TopologyDescription_GetDeviceDescriptions": array_getter("topology", "array", "descriptions"),
    "TopologyDescription_PlatformName": bytes_getter("topology", "platform_name"),
    "TopologyDescription_PlatformVersion": bytes_getter("topology", "platform_version"),
    "TopologyDescription_Serialize": serializer("topology", "serialized", "topology"),
}

__all__ = [
    "ENTRIES",
    "MEMORY_KINDS",
    "NAME",
    "OWN",
    "PLATFORM",
    "Description",
    "Device",
    "Memory",
    "Topology",
    "is_ours",
]
