"""The layouts of PJRT's C interface (pjrt_c_api.h), declared once: views, sizes, offsets and stubs derive from them.

Every argument structure begins with its size and a pointer to extensions, which the table leaves out.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

MAJOR: Final = 0
MINOR: Final = 114

# b bool, f float, i int, l int64_t, p pointer, u an enumeration, z size_t
_KINDS: Final[dict[str, Any]] = {
    "b": ctypes.c_bool,
    "f": ctypes.c_float,
    "i": ctypes.c_int32,
    "l": ctypes.c_int64,
    "p": ctypes.c_void_p,
    "u": ctypes.c_uint32,
    "z": ctypes.c_uint64,
}
_BEGIN: Final = "z:struct_size p:extension_start"

# the entry points in the order of the table, and the fields of their arguments: KIND:NAMES
_ENTRIES: Final = """
Error_Destroy p:error
Error_Message p:error,message z:message_size
Error_GetCode p:error u:code
Plugin_Initialize
Plugin_Attributes p:attributes z:num_attributes
Event_Destroy p:event
Event_IsReady p:event b:is_ready
Event_Error p:event
Event_Await p:event
Event_OnReady p:event,callback,user_arg
Client_Create p:create_options z:num_options
  p:kv_get_callback,kv_get_user_arg,kv_put_callback,kv_put_user_arg,client,kv_try_get_callback,kv_try_get_user_arg
Client_Destroy p:client
Client_PlatformName p:client,platform_name z:platform_name_size
Client_ProcessIndex p:client i:process_index
Client_PlatformVersion p:client,platform_version z:platform_version_size
Client_Devices p:client,devices z:num_devices
Client_AddressableDevices p:client,addressable_devices z:num_addressable_devices
Client_LookupDevice p:client i:id p:device
Client_LookupAddressableDevice p:client i:local_hardware_id p:addressable_device
Client_AddressableMemories p:client,addressable_memories z:num_addressable_memories
Client_Compile p:client,program,compile_options z:compile_options_size p:executable
Client_DefaultDeviceAssignment p:client i:num_replicas,num_partitions z:default_assignment_size p:default_assignment
Client_BufferFromHostBuffer p:client,data u:type p:dims z:num_dims p:byte_strides z:num_byte_strides
  u:host_buffer_semantics p:device,memory,device_layout,done_with_host_buffer,buffer
DeviceDescription_Id p:device_description i:id
DeviceDescription_ProcessIndex p:device_description i:process_index
DeviceDescription_Attributes p:device_description z:num_attributes p:attributes
DeviceDescription_Kind p:device_description,device_kind z:device_kind_size
DeviceDescription_DebugString p:device_description,debug_string z:debug_string_size
DeviceDescription_ToString p:device_description,to_string z:to_string_size
Device_GetDescription p:device,device_description
Device_IsAddressable p:device b:is_addressable
Device_LocalHardwareId p:device i:local_hardware_id
Device_AddressableMemories p:device,memories z:num_memories
Device_DefaultMemory p:device,memory
Device_MemoryStats p:device l:bytes_in_use,peak_bytes_in_use b:peak_bytes_in_use_is_set l:num_allocs
  b:num_allocs_is_set l:largest_alloc_size b:largest_alloc_size_is_set l:bytes_limit b:bytes_limit_is_set
  l:bytes_reserved b:bytes_reserved_is_set l:peak_bytes_reserved b:peak_bytes_reserved_is_set l:bytes_reservable_limit
  b:bytes_reservable_limit_is_set l:largest_free_block_bytes b:largest_free_block_bytes_is_set l:pool_bytes
  b:pool_bytes_is_set l:peak_pool_bytes b:peak_pool_bytes_is_set l:peak_allocated_bytes b:peak_allocated_bytes_is_set
Memory_Id p:memory i:id
Memory_Kind p:memory,kind z:kind_size
Memory_DebugString p:memory,debug_string z:debug_string_size
Memory_ToString p:memory,to_string z:to_string_size
Memory_AddressableByDevices p:memory,devices z:num_devices
Executable_Destroy p:executable
Executable_Name p:executable,executable_name z:executable_name_size
Executable_NumReplicas p:executable z:num_replicas
Executable_NumPartitions p:executable z:num_partitions
Executable_NumOutputs p:executable z:num_outputs
Executable_SizeOfGeneratedCodeInBytes p:executable l:size_in_bytes
Executable_GetCostAnalysis p:executable z:num_properties p:properties
Executable_OutputMemoryKinds p:executable z:num_outputs p:memory_kinds,memory_kind_sizes
Executable_OptimizedProgram p:executable,program
Executable_Serialize p:executable,serialized_bytes z:serialized_bytes_size
  p:serialized_executable,serialized_executable_deleter
LoadedExecutable_Destroy p:executable
LoadedExecutable_GetExecutable p:loaded_executable,executable
LoadedExecutable_AddressableDevices p:executable,addressable_devices z:num_addressable_devices
LoadedExecutable_Delete p:executable
LoadedExecutable_IsDeleted p:executable b:is_deleted
LoadedExecutable_Execute p:executable,options,argument_lists z:num_devices,num_args
  p:output_lists,device_complete_events,execute_device
Executable_DeserializeAndLoad p:client,serialized_executable z:serialized_executable_size
  p:loaded_executable,overridden_serialized_compile_options z:overridden_serialized_compile_options_size
  p:load_options
LoadedExecutable_Fingerprint p:executable,executable_fingerprint z:executable_fingerprint_size
Buffer_Destroy p:buffer
Buffer_ElementType p:buffer u:type
Buffer_Dimensions p:buffer,dims z:num_dims
Buffer_UnpaddedDimensions p:buffer,unpadded_dims z:num_dims
Buffer_DynamicDimensionIndices p:buffer,dynamic_dim_indices z:num_dynamic_dims
Buffer_GetMemoryLayout p:buffer z:layout_struct_size p:layout_extension_start z:tiled_struct_size
  p:tiled_extension_start,minor_to_major z:minor_to_major_size p:tile_dims,tile_dim_sizes z:num_tiles u:layout_type
Buffer_OnDeviceSizeInBytes p:buffer z:on_device_size_in_bytes
Buffer_Device p:buffer,device
Buffer_Memory p:buffer,memory
Buffer_Delete p:buffer
Buffer_IsDeleted p:buffer b:is_deleted
Buffer_CopyToDevice p:buffer,dst_device,dst_buffer
Buffer_ToHostBuffer p:src,host_layout,dst z:dst_size p:event
Buffer_IsOnCpu p:buffer b:is_on_cpu
Buffer_ReadyEvent p:buffer,event
Buffer_UnsafePointer p:buffer z:buffer_pointer
Buffer_IncreaseExternalReferenceCount p:buffer
Buffer_DecreaseExternalReferenceCount p:buffer
Buffer_OpaqueDeviceMemoryDataPointer p:buffer,device_memory_ptr
CopyToDeviceStream_Destroy p:stream
CopyToDeviceStream_AddChunk p:stream,chunk,transfer_complete
CopyToDeviceStream_TotalBytes p:stream l:total_bytes
CopyToDeviceStream_GranuleSize p:stream l:granule_size_in_bytes
CopyToDeviceStream_CurrentBytes p:stream l:current_bytes
TopologyDescription_Create p:topology_name z:topology_name_size p:create_options z:num_options p:topology
TopologyDescription_Destroy p:topology
TopologyDescription_PlatformName p:topology,platform_name z:platform_name_size
TopologyDescription_PlatformVersion p:topology,platform_version z:platform_version_size
TopologyDescription_GetDeviceDescriptions p:topology,descriptions z:num_descriptions
TopologyDescription_Serialize p:topology,serialized_bytes z:serialized_bytes_size
  p:serialized_topology,serialized_topology_deleter
TopologyDescription_Attributes p:topology,attributes z:num_attributes
Compile p:topology,program,compile_options z:compile_options_size p:client,executable
Executable_OutputElementTypes p:executable,output_types z:num_output_types
Executable_OutputDimensions p:executable z:num_outputs p:dims,dim_sizes
Buffer_CopyToMemory p:buffer,dst_memory,dst_buffer
Client_CreateViewOfDeviceBuffer p:client,device_buffer_ptr,dims z:num_dims u:element_type
  p:layout,device,on_delete_callback,on_delete_callback_arg l:stream p:buffer,memory
Executable_Fingerprint p:executable,executable_fingerprint z:executable_fingerprint_size
Client_TopologyDescription p:client,topology
Executable_GetCompiledMemoryStats p:executable
  l:generated_code_size_in_bytes,argument_size_in_bytes,output_size_in_bytes,alias_size_in_bytes
  l:temp_size_in_bytes,host_generated_code_size_in_bytes,host_argument_size_in_bytes
  l:host_output_size_in_bytes,host_alias_size_in_bytes,host_temp_size_in_bytes,peak_memory_in_bytes
  l:total_size_in_bytes,total_allocation_bytes,indefinite_allocations,peak_unpadded_heap_bytes
Memory_Kind_Id p:memory i:kind_id
ExecuteContext_Create p:context
ExecuteContext_Destroy p:context
Buffer_CopyRawToHost p:buffer,dst l:offset,transfer_size p:event
AsyncHostToDeviceTransferManager_Destroy p:transfer_manager
AsyncHostToDeviceTransferManager_TransferData p:transfer_manager i:buffer_index p:data l:offset,transfer_size
  b:is_last_transfer p:done_with_h2d_transfer
Client_CreateBuffersForAsyncHostToDevice p:client,shape_specs z:num_shape_specs p:device_layouts z:num_device_layouts
  p:memory,transfer_manager
AsyncHostToDeviceTransferManager_RetrieveBuffer p:transfer_manager i:buffer_index p:buffer_out
AsyncHostToDeviceTransferManager_Device p:transfer_manager,device_out
AsyncHostToDeviceTransferManager_BufferCount p:transfer_manager z:buffer_count
AsyncHostToDeviceTransferManager_BufferSize p:transfer_manager i:buffer_index z:buffer_size
AsyncHostToDeviceTransferManager_SetBufferError p:transfer_manager i:buffer_index u:error_code p:error_message
  z:error_message_size
AsyncHostToDeviceTransferManager_AddMetadata p:transfer_manager,transfer_metadata z:num_metadata
Client_DmaMap p:client,data z:size
Client_DmaUnmap p:client,data
Client_CreateUninitializedBuffer p:client,shape_dims z:shape_num_dims u:shape_element_type
  p:shape_layout,device,memory,buffer
Client_UpdateGlobalProcessInfo p:client,process_infos z:num_process_infos
TopologyDescription_Deserialize p:serialized_topology z:serialized_topology_size p:topology
Client_CreateAliasBuffer p:client,memory,shape_dims z:shape_num_dims u:shape_element_type
  p:shape_layout,alias_buffer,fulfill_alias_buffer_cb
Client_FulfillAliasBuffer p:client,buffer u:status_code p:error_message z:error_message_size p:fulfill_alias_buffer_cb
LoadedExecutable_GetDeviceAssignment p:executable,serialized_bytes z:serialized_bytes_size
  p:serialized_device_assignment,serialized_device_assignment_deleter
Client_CreateErrorBuffer p:client u:error_code p:error_message z:error_message_size p:shape_dims z:shape_num_dims
  u:shape_element_type p:shape_layout,memory,buffer,payload z:num_payload
AsyncHostToDeviceTransferManager_TransferLiteral p:transfer_manager i:buffer_index p:data,shape_dims z:shape_num_dims
  u:shape_element_type p:shape_layout,done_with_h2d_transfer
Buffer_CopyRawToHostFuture p:buffer l:offset,transfer_size p:event,callback_data,future_ready_callback
Device_PoisonExecution p:device i:launch_id u:error_code p:error_message z:error_message_size b:poisoned p:payload
  z:num_payload
Device_CreateAsyncTrackingEvent p:device,description z:description_size p:event
AsyncTrackingEvent_Destroy p:event
Executable_GetCompileOptions p:executable,serialized_bytes z:serialized_bytes_size
  p:serialized_compile_options,serialized_compile_options_deleter
Buffer_DonateWithControlDependency p:buffer,callback_data,dependency_ready_callback,out_buffer
Event_Create p:event
Event_Set p:event u:error_code p:error_message z:error_message_size
Device_GetAttributes p:device,attributes z:num_attributes p:device_attributes,attributes_deleter
Client_Load p:client,executable,compile_options z:compile_options_size p:loaded_executable
LoadedExecutable_AddressableDeviceLogicalIds p:executable,addressable_device_logical_ids
  z:num_addressable_device_logical_ids
Buffer_Bitcast p:buffer u:element_type p:dims z:num_dims p:device_layout,out_buffer
Error_ForEachPayload p:error,visitor,user_arg
TopologyDescription_Fingerprint p:topology z:fingerprint
Executable_ParameterMemoryKinds p:executable z:num_parameters p:memory_kinds,memory_kind_sizes
Device_ClearMemoryStats p:device
TopologyDescription_MakeCanonicalShapeForMemorySpace p:topology i:memory_space_kind_id p:dims z:num_dims
  u:element_type p:layout,serialized_shape z:serialized_shape_size p:serialized_shape_deleter
TopologyDescription_GetMemorySpaceKindIds p:topology,memory_space_kind_ids z:num_memory_space_kind_ids
"""

# other structures that callers give or take
_STRUCTURES: Final = """
ApiVersion z:struct_size p:extension_start i:major,minor
ExecuteOptions z:struct_size p:extension_start,send_callbacks,recv_callbacks z:num_send_ops,num_recv_ops l:launch_id
  p:non_donatable_input_indices z:num_non_donatable_input_indices p:context,call_location
LogicalDeviceIds i:replica,partition
MemoryLayout z:struct_size p:extension_start z:tiled_struct_size p:tiled_extension_start,minor_to_major
  z:minor_to_major_size p:tile_dims,tile_dim_sizes z:num_tiles u:type
NamedValue z:struct_size p:extension_start,name z:name_size u:type l:value z:value_size
Program z:struct_size p:extension_start,code z:code_size p:format z:format_size
StridedLayout z:struct_size p:extension_start z:tiled_struct_size p:tiled_extension_start,byte_strides
  z:num_byte_strides
"""

# what a handle points to: the fields that native getters read; Python has the rest. Callers look at the first word,
# where newer plugins have a table of functions: null says that there is none.
_RECORDS: Final = """
Buffer u:type b:is_deleted,is_on_cpu l:offset p:dims z:num_dims,size p:device,memory,pointer
  b:is_native,is_pending l:call p:block l:seen
Device p:description,memory i:local_hardware_id b:is_addressable p:gate
DeviceDescription i:id,process_index p:kind z:kind_size p:text z:text_size
Error u:code p:message z:message_size b:is_destroyed
Event b:is_ready,is_native,waits u:uses p:gate,next,callbacks
Executable z:num_outputs p:plan
Memory i:id,kind_id p:kind z:kind_size p:text z:text_size
Object
"""

# What native calls share with Python (native_calls.py says how). Calls are counted from 1.
#   Gate: of a cluster.  lock: taken by a thread for a moment.  closed: 1 while it is closed, 2 while `gate_bar` keeps
#     it so; further bits close it for good.  is_in_flight: whether `issued`, the newest call, is.  taking: the call
#     that becomes Python's, 0 for none.  taken_events: those of its events that are not yet.  over: the newest call of
#     which it is known that it and all before have ended, and well unless it is `failed`, the newest that has not, or
#     is older.  control: the header of this process's calls (control_block.py).  sequence, target: of the command in
#     flight.  turn, ordinal, arrival: of the call in flight, where there are several processes (native_launches.py).
#     plan: its.  events: the first of those that wait for it.  armed: whether the watching thread looks at calls; it
#     sleeps on that.  seen: the newest call that it has seen.  holds: whether Python holds memory until `issued` is
#     over.  main: the main thread.  checks: how often arguments were checked; a Buffer's `seen` is twice the number of
#     the last one that had it as an argument, and one more where it was donated.
#   Plan: of an executable.  donated, labels, dims, handles: by argument whether it is donated; by argument the
#     address of its dimension sizes, which tells shapes apart; by device its handle.  records: by device.  areas: by
#     device where the offsets of its arguments and results are written.  results: by device and result a Buffer to
#     copy, with the offset in its block, and as pointer the memory's begin.  numbers: by result the number of its
#     block.  blocks: by number the first that is free.  uses: by number how many results lie in it.  launch, start,
#     program: the LaunchSet of its processes, what issues their calls, and the number that they know the program by;
#     null and 0 for one process.
#   Block: of results.  uses: of its results that exist.  next: the next one that is free.  free: where its place in the
#     plan is.
#   Callback: that an event has to call.
_STATES: Final = """
Block u:uses p:next,free l:offset
Callback p:next,function,argument
Gate u:lock,closed,is_in_flight,sequence,target,armed,holds,arrival l:issued,over,failed,seen,taking,checks
  z:main,turn,ordinal p:control,plan,events,taken_events
Plan u:devices,arguments,results,blocks,number,program b:has_donated p:gate,areas,handles,dims,donated,records,made
  p:numbers,free,uses,launch,start
"""

# getters without Python: the argument with the handle, its record, and fields of the arguments with those of the record
_NATIVE: Final = """
Buffer_Device buffer Buffer device=device
Buffer_Dimensions buffer Buffer dims=dims num_dims=num_dims
Buffer_ElementType buffer Buffer type=type
Buffer_IsDeleted buffer Buffer is_deleted=is_deleted
Buffer_IsOnCpu buffer Buffer is_on_cpu=is_on_cpu
Buffer_Memory buffer Buffer memory=memory
Buffer_OnDeviceSizeInBytes buffer Buffer on_device_size_in_bytes=size
Buffer_UnpaddedDimensions buffer Buffer unpadded_dims=dims num_dims=num_dims
DeviceDescription_DebugString device_description DeviceDescription debug_string=text debug_string_size=text_size
DeviceDescription_Id device_description DeviceDescription id=id
DeviceDescription_Kind device_description DeviceDescription device_kind=kind device_kind_size=kind_size
DeviceDescription_ProcessIndex device_description DeviceDescription process_index=process_index
DeviceDescription_ToString device_description DeviceDescription to_string=text to_string_size=text_size
Device_DefaultMemory device Device memory=memory
Device_GetDescription device Device device_description=description
Device_IsAddressable device Device is_addressable=is_addressable
Device_LocalHardwareId device Device local_hardware_id=local_hardware_id
Error_GetCode error Error code=code
Error_Message error Error message=message message_size=message_size
Executable_NumOutputs executable Executable num_outputs=num_outputs
Memory_DebugString memory Memory debug_string=text debug_string_size=text_size
Memory_Id memory Memory id=id
Memory_Kind memory Memory kind=kind kind_size=kind_size
Memory_Kind_Id memory Memory kind_id=kind_id
Memory_ToString memory Memory to_string=text to_string_size=text_size
"""

# entry points that only set a byte of a record: the argument with the handle, the record, the byte
MARKS: Final = {"Error_Destroy": ("error", "Error", "is_destroyed")}
# entry points of native_calls.py that never call Python
WHOLE: Final = ("Event_IsReady",)
# entry points that do nothing: no error has payloads, a plugin needs no start, other processes of JAX no devices of
# this one, and nothing is told to track events
EMPTY: Final = (
    "AsyncTrackingEvent_Destroy",
    "Client_UpdateGlobalProcessInfo",
    "Device_CreateAsyncTrackingEvent",
    "Error_ForEachPayload",
    "Plugin_Initialize",
)
# entry points with Python at whose errors jaxlib ends the process (pjrt_c_api_client.cc, pjrt_c_api_helpers.cc)
_FATAL: Final = """
Buffer_DecreaseExternalReferenceCount Buffer_Delete Buffer_Destroy Buffer_ReadyEvent
Client_AddressableDevices Client_AddressableMemories Client_Destroy Client_Devices Client_PlatformName
Client_PlatformVersion Client_ProcessIndex
DeviceDescription_Attributes Device_AddressableMemories Device_GetAttributes Memory_AddressableByDevices
Event_Create Event_Destroy
Executable_Destroy Executable_Name Executable_NumPartitions Executable_NumReplicas
Executable_SizeOfGeneratedCodeInBytes
LoadedExecutable_AddressableDeviceLogicalIds LoadedExecutable_AddressableDevices LoadedExecutable_Delete
LoadedExecutable_Destroy LoadedExecutable_GetDeviceAssignment LoadedExecutable_GetExecutable
LoadedExecutable_IsDeleted
Plugin_Attributes
TopologyDescription_Attributes TopologyDescription_Destroy TopologyDescription_GetDeviceDescriptions
TopologyDescription_PlatformName TopologyDescription_PlatformVersion
"""
_WITHOUT_HANDLE: Final = ("Event_Create", "Plugin_Attributes")

Fields = tuple[tuple[str, Any], ...]


def _parsed(text: str, begin: str = "") -> dict[str, Fields]:
    """The fields of each structure, by name."""
    found: dict[str, Fields] = {}
    for line in text.strip().replace("\n  ", " ").split("\n"):
        name, *groups = line.split()
        fields = (group.split(":") for group in (*begin.split(), *groups))
        found[name] = tuple((field, _KINDS[kind]) for kind, names in fields for field in names.split(","))
    return found


def _structure(name: str, fields: Fields) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": fields, "__slots__": ()})


FATAL: Final = frozenset(_FATAL.split())
ENTRIES: Final = {name: _structure(f"{name}_Args", fields) for name, fields in _parsed(_ENTRIES, _BEGIN).items()}
STRUCTURES: Final = {name: _structure(name, fields) for name, fields in _parsed(_STRUCTURES).items()}
RECORDS: Final = {name: _structure(name, fields) for name, fields in _parsed(_RECORDS, "p:functions").items()}
STATES: Final = {name: _structure(name, fields) for name, fields in _parsed(_STATES).items()}


@cache
def natives() -> dict[str, tuple[str, str, tuple[tuple[str, str], ...]]]:
    """Of each native getter the argument with the handle, the record, and (field of the arguments, of the record)."""
    found = {}
    for line in _NATIVE.strip().split("\n"):
        entry, handle, record, *pairs = line.split()
        moved = [pair.split("=") for pair in pairs]
        found[entry] = handle, record, tuple((out, field) for out, field in moved)
    return found


def is_native(name: str) -> bool:
    """Whether an entry point never calls Python."""
    return name in natives() or name in MARKS or name in EMPTY or name in WHOLE


def outputs(name: str) -> tuple[str, ...]:
    """The fields of the arguments that a FATAL entry point writes: all but the handle that it is given."""
    fields: Any = ENTRIES[name]._fields_
    return tuple(field for field, _ in fields[2 if name in _WITHOUT_HANDLE else 3 :])


def offset(structure: type[ctypes.Structure], field: str) -> int:
    """Where a field begins, in bytes."""
    return int(getattr(structure, field).offset)


__all__ = [
    "EMPTY",
    "ENTRIES",
    "FATAL",
    "MAJOR",
    "MARKS",
    "MINOR",
    "RECORDS",
    "STATES",
    "STRUCTURES",
    "WHOLE",
    "is_native",
    "natives",
    "offset",
    "outputs",
]
