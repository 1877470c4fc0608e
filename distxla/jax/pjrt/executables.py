"""Executables: programs that are loaded on devices, and their calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from distxla.errors import ArgumentError
from distxla.jax.partitioner.protobuf import device_assignment, module_with_config
from distxla.jax.pjrt import buffers, handles
from distxla.jax.pjrt.calls import Calls
from distxla.jax.pjrt.client import Client
from distxla.jax.pjrt.devices import MEMORY_KINDS, OWN
from distxla.jax.pjrt.element_types import number_of
from distxla.jax.pjrt.events import pending_event
from distxla.jax.pjrt.handles import (
    CArray,
    CBytes,
    CNumbers,
    array_getter,
    bytes_getter,
    integers,
    serializer,
    text,
)
from distxla.jax.pjrt.native_events import PATIENCE_NS
from distxla.jax.pjrt.native_functions import native_functions
from distxla.jax.pjrt.plans import Plan
from distxla.jax.pjrt.programs import Program, compile_program
from distxla.jax.pjrt.serialized import deserialized, serialized
from distxla.jax.pjrt.table import RECORDS, STRUCTURES
from distxla.jax.private.backends import cost_analysis
from distxla.runtime.arrays.call_queue import PendingCall

_PATIENCE_S: Final = PATIENCE_NS / 1e9
_FORMAT: Final = CBytes("hlo_with_config")


class Loaded:
    """A program that is loaded on devices, as C++ holds it: once as loaded, and once as compiled. devices: those of
    this process, in the order of arguments and results; none where the program is for other processes only."""

    def __init__(self, client: Client, program: Program) -> None:
        self.client = client
        self.program = program
        self.is_deleted = False
        self.devices = [client.devices[device] for device in program.devices if client.is_here(device)]
        self.device_array = CArray(ctypes.c_void_p, [device.handle for device in self.devices])
        results = program.executable.results
        kinds = program.result_kinds
        self.calls = Calls(program.executable, self.devices, kinds, client.launches)
        self.name = CBytes(program.executable.program.name)
        self.types = CArray(ctypes.c_uint32, [number_of(shape.dtype) for shape in results])
        self.dims = CArray(ctypes.c_int64, [size for shape in results for size in shape.dims])
        self.ranks = CArray(ctypes.c_uint64, [len(shape.dims) for shape in results])
        self.result_kinds = MemoryKindNames(kinds)
        self.parameter_kinds = MemoryKindNames(program.parameter_kinds)
        ids = program.ids
        logical = [n for r, row in enumerate(ids) for p, d in enumerate(row) if client.is_here(d) for n in (r, p)]
        self.logical_ids = CArray(ctypes.c_int32, logical)
        self.assignment = CBytes(device_assignment(program.ids))
        self.options = CBytes(program.options)
        self.fingerprint = CBytes(program.partitioned.fingerprint)
        self._record = RECORDS["Executable"](num_outputs=len(results))
        self._plan: Plan | None = None
        self._is_planned = False
        self.handle = handles.bind(self, self._record)
        self._costs: CNumbers | None = None
        self._optimized: CBytes | None = None
        self._serialized: CBytes | None = None

    def compiled(self) -> int:
        """A further handle, of the program as compiled."""
        return handles.bind(self, RECORDS["Executable"](num_outputs=self.types.size))

    def delete(self) -> None:
        """It has no further calls."""
        self.is_deleted = True
        self._record.plan = None
        plan, self._plan, self._is_planned = self._plan, None, True
        if plan is not None:
            self.client.direct().drop(plan)

    def issue(self, args: Any, rows: list[list[int]], answer: int) -> None:
        """Issue the call by native code, which could not do it alone, if that is possible. rows: of handles.  answer:
        where native code writes whether it has."""
        if not self._is_planned and self.calls.has_begun:
            self._plan = self.calls.plan(self.client.direct(), self.program.donated)
            self._record.plan = None if self._plan is None else self._plan.address
            self._is_planned = True
        if self._plan is None:
            return
        self.client.cluster.queue.settle(_PATIENCE_S)
        if self._plan.is_short:
            self.client.direct().grow(self._plan)
        for buffer in (handles.find(handle) for row in rows for handle in row):
            if buffer is not None:
                buffer.settle()
        native_functions().call_execute(ctypes.addressof(args), 1, answer)

    @property
    def optimized(self) -> CBytes:
        if self._optimized is None:
            program = self.program
            found = module_with_config(program.partitioned.proto, program.replicas, program.partitions)
            self._optimized = CBytes(found)
        return self._optimized

    @property
    def costs(self) -> CNumbers:
        """Of one device's program: XLA's estimate."""
        if self._costs is None:
            self._costs = CNumbers(cost_analysis(OWN, self.program.partitioned.proto))
        return self._costs

    @property
    def serialized(self) -> CBytes:
        if self._serialized is None:
            self._serialized = CBytes(serialized(self.program))
        return self._serialized


class MemoryKindNames:
    """Names of memory kinds as C++ takes them. kinds: by number in MEMORY_KINDS."""

    def __init__(self, kinds: Sequence[int]) -> None:
        names = list(MEMORY_KINDS.values())
        self.names = CArray(ctypes.c_void_p, [names[kind].address for kind in kinds])
        self.sizes = CArray(ctypes.c_uint64, [names[kind].size for kind in kinds])

    def tell(self, args: Any) -> None:
        args.memory_kinds, args.memory_kind_sizes = self.names.address, self.sizes.address


def compile_(args: Any) -> None:
    """Client_Compile."""
    client = handles.of(args.client)
    given = STRUCTURES["Program"].from_address(args.program)
    code = ctypes.string_at(given.code, given.code_size)
    options = ctypes.string_at(args.compile_options, args.compile_options_size)
    program = compile_program(client, code, text(given.format, given.format_size), options)
    args.executable = Loaded(client, program).handle


def deserialize(args: Any) -> None:
    """Executable_DeserializeAndLoad."""
    client = handles.of(args.client)
    data = ctypes.string_at(args.serialized_executable, args.serialized_executable_size)
    size = args.overridden_serialized_compile_options_size
    options = ctypes.string_at(args.overridden_serialized_compile_options, size) if size else b""
    args.loaded_executable = Loaded(client, deserialized(client, data, options)).handle


def get_executable(args: Any) -> None:
    args.executable = handles.of(args.loaded_executable).compiled()


def destroy(args: Any) -> None:
    handles.release(args.executable)


def destroy_loaded(args: Any) -> None:
    loaded = handles.find(args.executable)
    if loaded is not None:
        loaded.delete()
        handles.release(args.executable)


def delete(args: Any) -> None:
    handles.of(args.executable).delete()


def is_deleted(args: Any) -> None:
    args.is_deleted = handles.of(args.executable).is_deleted


def logical_ids(args: Any) -> None:
    loaded = handles.of(args.executable)
    args.addressable_device_logical_ids = loaded.logical_ids.address
    args.num_addressable_device_logical_ids = len(loaded.devices)


def replicas(args: Any) -> None:
    args.num_replicas = handles.of(args.executable).program.replicas


def partitions(args: Any) -> None:
    args.num_partitions = handles.of(args.executable).program.partitions


def output_dimensions(args: Any) -> None:
    loaded = handles.of(args.executable)
    args.num_outputs, args.dims, args.dim_sizes = loaded.types.size, loaded.dims.address, loaded.ranks.address


def output_memory_kinds(args: Any) -> None:
    kinds = handles.of(args.executable).result_kinds
    args.num_outputs = kinds.names.size
    kinds.tell(args)


def parameter_memory_kinds(args: Any) -> None:
    kinds = handles.of(args.executable).parameter_kinds
    args.num_parameters = kinds.names.size
    kinds.tell(args)


def code_size(args: Any) -> None:
    args.size_in_bytes = handles.of(args.executable).program.executable.image_bytes


def memory_stats(args: Any) -> None:
    """Executable_GetCompiledMemoryStats, of one device."""
    executable = handles.of(args.executable).program.executable
    for field in STATISTICS:
        setattr(args, field, 0)
    args.generated_code_size_in_bytes = executable.image_bytes
    args.argument_size_in_bytes = sum(shape.byte_size for shape in executable.parameters)
    args.output_size_in_bytes = sum(shape.byte_size for shape in executable.results)
    args.alias_size_in_bytes = sum(executable.results[result].byte_size for result, _ in executable.program.in_place)
    args.temp_size_in_bytes = executable.program.arena_bytes


STATISTICS: Final = (
    "generated_code_size_in_bytes",
    "argument_size_in_bytes",
    "output_size_in_bytes",
    "alias_size_in_bytes",
    "temp_size_in_bytes",
    "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes",
    "host_output_size_in_bytes",
    "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)


def optimized_program(args: Any) -> None:
    """Executable_OptimizedProgram: the first call asks for the size, the second for the bytes."""
    found = handles.of(args.executable).optimized
    wanted = STRUCTURES["Program"].from_address(args.program)
    if not wanted.code:
        wanted.code_size = found.size
    elif wanted.code_size < found.size:
        raise ArgumentError(f"the program has {found.size} bytes; there is place for {wanted.code_size}")
    else:
        ctypes.memmove(wanted.code, found.address, found.size)
    wanted.format, wanted.format_size = _FORMAT.address, _FORMAT.size


class Execution:
    """LoadedExecutable_Execute; called again where an interrupt has come, it goes on behind what is done."""

    def __init__(self) -> None:
        self._issued = ctypes.c_int32()  # by native code
        self._submitted: tuple[list[list[buffers.Buffer]], PendingCall] | None = None

    def __call__(self, args: Any) -> None:
        loaded = handles.of(args.executable)
        loaded.client.require_owner()
        if loaded.is_deleted:
            raise ArgumentError("the executable has been deleted")
        count = args.num_devices
        if count != len(loaded.devices):
            raise ArgumentError(f"arguments for {count} devices; the program has {len(loaded.devices)}")
        if not count:
            return  # JAX calls it in every process, also where none of its devices is
        places = integers(args.argument_lists, count, ctypes.c_uint64)
        given = [integers(place, args.num_args, ctypes.c_uint64) for place in places]
        donated = _given_up(loaded.program.donated, args.options)
        if donated == loaded.program.donated and self._is_issued(loaded, args, given):
            for numbers in given:
                for k in donated:
                    if (buffer := handles.find(numbers[k])) is not None:  # native code has deleted its own
                        buffer.delete()
            return
        rows = [list(map(buffers.of, row)) for row in given]
        made, call = self._submit(loaded, rows, donated, args.options)
        for row in rows:
            for k in donated:
                row[k].delete()
        for found, place in zip(made, integers(args.output_lists, count, ctypes.c_uint64)):
            handles.write(place, [buffer.handle for buffer in found])
        if args.device_complete_events:
            handles.write(args.device_complete_events, [pending_event(call, count=count)] * count)

    def _is_issued(self, loaded: Loaded, args: Any, rows: list[list[int]]) -> bool:
        """Whether native code has issued the call, now or before."""
        if not self._issued.value and not self.is_submitted:
            loaded.issue(args, rows, ctypes.addressof(self._issued))
        return bool(self._issued.value)

    def _submit(
        self, loaded: Loaded, rows: list[list[buffers.Buffer]], donated: frozenset[int], options: int | None
    ) -> tuple[list[list[buffers.Buffer]], PendingCall]:
        """The results and the call, which the queue has."""
        cluster = loaded.client.started()
        if self._submitted is None or not self.is_submitted:
            self._submitted = loaded.calls.prepare(cluster, rows, donated, _line(options))
            cluster.queue.submit(self._submitted[1])
        return self._submitted

    @property
    def is_submitted(self) -> bool:
        """Whether the queue has the call."""
        return self._submitted is not None and self._submitted[1].is_submitted


def _line(options: int | None) -> str:
    """The user's line that calls, as "file:line"; "" where JAX does not tell it."""
    place = STRUCTURES["ExecuteOptions"].from_address(options).call_location if options else None
    return ctypes.string_at(place).decode(errors="replace") if place else ""


def _given_up(donated: frozenset[int], options: int | None) -> frozenset[int]:
    """The arguments that the program takes over, but those that the caller keeps."""
    if not donated or not options:
        return donated
    found = STRUCTURES["ExecuteOptions"].from_address(options)
    kept = integers(found.non_donatable_input_indices, found.num_non_donatable_input_indices)
    return donated.difference(kept)


ENTRIES: Final = {
    "Client_Compile": compile_,
    "Executable_DeserializeAndLoad": deserialize,
    "Executable_Destroy": destroy,
    "Executable_Fingerprint": bytes_getter("executable", "fingerprint", "executable_fingerprint"),
    "Executable_GetCompileOptions": serializer("executable", "options", "compile_options"),
    "Executable_GetCompiledMemoryStats": memory_stats,
    "Executable_GetCostAnalysis": array_getter("executable", "costs", "properties"),
    "Executable_Name": bytes_getter("executable", "name", "executable_name"),
    "Executable_NumPartitions": partitions,
    "Executable_NumReplicas": replicas,
    "Executable_OptimizedProgram": optimized_program,
    "Executable_OutputDimensions": output_dimensions,
    "Executable_OutputElementTypes": array_getter("executable", "types", "output_types"),
    "Executable_OutputMemoryKinds": output_memory_kinds,
    "Executable_ParameterMemoryKinds": parameter_memory_kinds,
    "Executable_Serialize": serializer("executable", "serialized", "executable"),
    "Executable_SizeOfGeneratedCodeInBytes": code_size,
    "LoadedExecutable_AddressableDeviceLogicalIds": logical_ids,
    "LoadedExecutable_AddressableDevices": array_getter("executable", "device_array", "addressable_devices"),
    "LoadedExecutable_Delete": delete,
    "LoadedExecutable_Destroy": destroy_loaded,
    "LoadedExecutable_Execute": lambda args: Execution()(args),
    "LoadedExecutable_Fingerprint": bytes_getter("executable", "fingerprint", "executable_fingerprint"),
    "LoadedExecutable_GetDeviceAssignment": serializer("executable", "assignment", "device_assignment"),
    "LoadedExecutable_GetExecutable": get_executable,
    "LoadedExecutable_IsDeleted": is_deleted,
}

__all__ = ["ENTRIES", "Execution", "Loaded", "MemoryKindNames"]
