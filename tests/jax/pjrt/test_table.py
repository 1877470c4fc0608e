"""The C table: layouts, native getters, and stubs that keep exceptions."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from llvmlite import binding

pytest.importorskip("jax")

from distxla.errors import ArgumentError, ClusterError, OutOfMemoryError, ReplicaLostError, UnsupportedOpError
from distxla.jax.partitioner.protobuf import device_assignment, device_ids
from distxla.jax.pjrt import errors, events, handles, late, plugin
from distxla.jax.pjrt.events import Event
from distxla.jax.pjrt.executables import MemoryKindNames
from distxla.jax.pjrt.handles import CBytes
from distxla.jax.pjrt.switch import SWITCH
from distxla.jax.pjrt.table import ENTRIES, FATAL, RECORDS, STRUCTURES, natives, offset
from distxla.jax.private import backends as private_backends
from distxla.machine.heap import Heap
from tests.interrupted import interrupted_everywhere

FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

# sizeof in C, of pjrt_c_api.h 0.114, padding included
SIZES = {
    "Buffer_DonateWithControlDependency": 48,
    "Buffer_GetMemoryLayout": 104,
    "Client_BufferFromHostBuffer": 120,
    "Client_Create": 88,
    "Client_CreateViewOfDeviceBuffer": 112,
    "Device_MemoryStats": 208,
    "Executable_GetCompiledMemoryStats": 144,
    "LoadedExecutable_Execute": 80,
    "Plugin_Initialize": 16,
    "TopologyDescription_MakeCanonicalShapeForMemorySpace": 88,
}


@pytest.mark.parametrize("name", SIZES)
def test_layouts_are_those_of_c(name: str) -> None:
    assert ctypes.sizeof(ENTRIES[name]) == SIZES[name]


def test_the_table_has_all_functions_in_order() -> None:
    table = plugin.table()
    words = (ctypes.c_uint64 * (5 + len(ENTRIES))).from_address(table.address)
    version = STRUCTURES["ApiVersion"].from_address(table.address + 16)
    assert (words[0], version.struct_size, version.major, version.minor) == (40 + 8 * 138, 24, 0, 114)
    names = list(ENTRIES)
    assert (len(names), names[0], names[55], names[137]) == (
        138,
        "Error_Destroy",
        "LoadedExecutable_Execute",
        "TopologyDescription_GetMemorySpaceKindIds",
    )
    assert all(words[5:])


def call(name: str, args: ctypes.Structure) -> int | None:
    words = (ctypes.c_uint64 * (5 + len(ENTRIES))).from_address(plugin.table().address)
    return FUNCTION(words[5 + list(ENTRIES).index(name)])(ctypes.addressof(args))


def message_of(error: int | None) -> tuple[int, str]:
    assert error is not None
    code, text, gone = ENTRIES["Error_GetCode"](), ENTRIES["Error_Message"](), ENTRIES["Error_Destroy"]()
    code.error = text.error = gone.error = error
    call("Error_GetCode", code)
    call("Error_Message", text)
    found = code.code, ctypes.string_at(text.message, text.message_size).decode()
    call("Error_Destroy", gone)
    return found


@pytest.mark.parametrize("name", natives())
def test_native_getters_copy_the_fields_of_their_record(name: str) -> None:
    argument, record_name, pairs = natives()[name]
    record, args = RECORDS[record_name](), ENTRIES[name]()
    setattr(args, argument, ctypes.addressof(record))
    for number, (_, field) in enumerate(pairs, 1):
        setattr(record, field, number)
    assert call(name, args) is None
    assert [int(getattr(args, out)) for out, _ in pairs] == list(range(1, len(pairs) + 1))


def test_what_is_not_there_says_so() -> None:
    code, text = message_of(call("Client_CreateAliasBuffer", ENTRIES["Client_CreateAliasBuffer"]()))
    assert code == 12
    assert "PJRT_Client_CreateAliasBuffer is not implemented by distxla" in text


def test_a_client_goes_although_a_call_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """C++ ends the process where that gives an error."""

    class Lost:
        def close(self) -> None:
            raise ReplicaLostError("device 1 is gone")

    args = ENTRIES["Client_Destroy"](0, None, handles.new(Lost()))
    assert call("Client_Destroy", args) is None
    assert handles.find(args.client) is None
    assert "device 1 is gone" in capsys.readouterr().err


def test_destroyed_errors_are_forgotten() -> None:
    made = {handle: handles.of(handle) for handle in [errors.new_error(ValueError("a")) for _ in range(5)]}
    for handle in made:
        message_of(handle)
    message_of(errors.new_error(ValueError("b")))
    # the new one may have the address of one that is gone; other threads may have made errors, too
    assert all(handles.find(handle) is not error for handle, error in made.items())


def test_errors_are_forgotten_by_two_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread makes an error while another one goes through those that were destroyed."""
    release, depth = handles.release, []

    def release_amid_another(handle: int | None) -> None:
        release(handle)
        if not depth:
            depth.append(handle)
            made.append(errors.new_error(ValueError("b")))

    made = [errors.new_error(ValueError("a")) for _ in range(3)]
    for handle in made:
        message_of(handle)
    monkeypatch.setattr(handles, "release", release_amid_another)
    made.append(errors.new_error(ValueError("c")))
    assert depth
    assert [message_of(handle)[1].splitlines()[-1] for handle in made[-2:]] == ["ValueError: b", "ValueError: c"]


def test_an_exception_becomes_an_error_with_its_traceback() -> None:
    args = ENTRIES["Executable_Fingerprint"](0, None, 0xBAD)
    code, text = message_of(call("Executable_Fingerprint", args))
    assert code == 13
    assert "KeyError" in text
    assert "internal error in PJRT_Executable_Fingerprint" in text


def test_entry_points_at_whose_errors_jaxlib_ends_the_process_have_none() -> None:
    assert all(plugin.is_implemented(name) for name in FATAL)
    gone = ENTRIES["LoadedExecutable_GetDeviceAssignment"](0, None, 0xBAD, 7, 7, 7, 7)
    assert call("LoadedExecutable_GetDeviceAssignment", gone) is None
    assert (gone.serialized_bytes, gone.serialized_bytes_size, gone.executable) == (None, 0, 0xBAD)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(gone.serialized_device_assignment_deleter)(None)  # C++ calls it
    compiling = "Client_Compile"  # at its errors JAX raises
    code, text = message_of(call(compiling, ENTRIES[compiling]()))
    assert (code, "KeyError: 2989" in text) == (13, True)
    assert "in PJRT_LoadedExecutable_GetDeviceAssignment, which cannot fail" in text
    assert "KeyError: None" in message_of(call(compiling, ENTRIES[compiling]()))[1]


def test_a_buffer_of_which_nothing_is_known_has_an_event_that_tells_it() -> None:
    args = ENTRIES["Buffer_ReadyEvent"](0, None, handles.bind("no buffer", RECORDS["Buffer"]()))
    assert call("Buffer_ReadyEvent", args) is None
    ready, waits = ENTRIES["Event_IsReady"](0, None, args.event), ENTRIES["Event_Await"](0, None, args.event)
    assert (call("Event_IsReady", ready), ready.is_ready) == (None, True)
    assert "AssertionError" in message_of(call("Event_Await", waits))[1]
    assert call("Event_Destroy", ENTRIES["Event_Destroy"](0, None, args.event)) is None
    handles.release(args.buffer)


@pytest.mark.parametrize(("status", "message"), [(0, ""), (5, "no such thing")])
def test_events_that_the_caller_sets(status: int, message: str) -> None:
    made = ENTRIES["Event_Create"]()
    assert call("Event_Create", made) is None
    found: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda error, user: found.append(error))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert call("Event_OnReady", ENTRIES["Event_OnReady"](0, None, made.event, address, None)) is None
    ready = ENTRIES["Event_IsReady"](0, None, made.event)
    call("Event_IsReady", ready)
    assert (ready.is_ready, found) == (False, [])
    text = CBytes(message)
    given = ENTRIES["Event_Set"](0, None, made.event, status, text.address, text.size)
    assert call("Event_Set", given) is None
    call("Event_IsReady", ready)
    assert ready.is_ready
    failures = [*found, call("Event_Await", ENTRIES["Event_Await"](0, None, made.event))]
    told = [None if failure is None else message_of(failure) for failure in failures]
    assert told == [(status, message) if status else None] * 2
    assert "was not set" in message_of(call("Event_Set", given))[1]
    assert call("Event_Destroy", ENTRIES["Event_Destroy"](0, None, made.event)) is None


@pytest.mark.parametrize(
    ("platforms", "is_registered", "environment", "warns"),
    [
        (("",), True, "", False),  # JAX takes the plugin, which comes first
        (("cpu",), True, "", True),
        (("",), False, "distxla,cpu", True),
        (("",), False, "cpu", False),
    ],
)
def test_who_asked_for_the_plugin_hears_of_other_platforms(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    platforms: tuple[str],
    is_registered: bool,
    environment: str,
    warns: bool,
) -> None:
    for module in (plugin, private_backends):
        monkeypatch.setattr(module, "wanted_platforms", lambda: platforms)
    monkeypatch.setattr(plugin, "is_plugin_registered", lambda name: is_registered)
    monkeypatch.setenv("JAX_PLATFORMS", environment)
    plugin.warn.cache_clear()
    plugin.initialize()
    assert ("asked for distxla's devices" in capsys.readouterr().err) is warns


NEEDS_MONITORING = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")


def fail() -> ctypes.Structure:
    """A failure of a function that must have none."""
    gone = ENTRIES["LoadedExecutable_GetDeviceAssignment"](0, None, 0xBAD, 7, 7, 7, 7)
    assert call("LoadedExecutable_GetDeviceAssignment", gone) is None
    return gone


def tellings() -> int:
    """How many functions tell it."""
    count = 0
    while "KeyError: 2989" in message_of(call("Client_Compile", ENTRIES["Client_Compile"]()))[1]:
        count += 1
    return count


@NEEDS_MONITORING
def test_what_must_not_fail_has_no_error_wherever_a_handler_raises() -> None:
    places = 0
    found: list[ctypes.Structure] = []
    for place, _ in interrupted_everywhere([plugin, handles], found.clear, lambda _: found.append(fail())):
        places += 1
        # done again, it fails again; where the first failure was kept by then, both are told
        assert tellings() in (1, 2), place
    assert places > 10
    assert tellings() == 1  # that of the last call, in which no handler raised


@NEEDS_MONITORING
@pytest.mark.parametrize("name", ["Client_BufferFromHostBuffer", "Client_Compile"])
def test_a_failure_is_told_once_wherever_a_handler_raises(name: str) -> None:
    words = (ctypes.c_uint64 * (5 + len(ENTRIES))).from_address(plugin.table().address)
    function = FUNCTION(words[5 + list(ENTRIES).index(name)])
    args = ENTRIES[name]()
    later = []

    def prepare() -> list[int | None]:
        fail()
        return []

    def tell(answers: list[int | None]) -> None:
        answers.extend(map(function, [ctypes.addressof(args)]))  # whatever is raised then

    for place, answers in interrupted_everywhere([plugin, handles], prepare, tell):
        later.append(tellings())
        assert later[-1] + ("KeyError: 2989" in message_of(answers[0])[1]) == 1, place
    assert set(later) == {0, 1}
    assert tellings() == 0


@NEEDS_MONITORING
@pytest.mark.parametrize("status", [0, 5])
def test_an_event_is_set_once_wherever_a_handler_raises(status: int) -> None:
    found: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda error, user: found.append(user))
    address = ctypes.cast(callback, ctypes.c_void_p).value

    def prepare() -> int:
        found.clear()
        made = ENTRIES["Event_Create"]()
        assert call("Event_Create", made) is None
        for user in (3, 4):
            assert call("Event_OnReady", ENTRIES["Event_OnReady"](0, None, made.event, address, user)) is None
        return int(made.event)

    text = CBytes("no such thing")

    def set_it(event: int) -> None:
        assert call("Event_Set", ENTRIES["Event_Set"](0, None, event, status, text.address, text.size)) is None

    places = 0
    for place, event in interrupted_everywhere([plugin, handles, events], prepare, set_it):
        places += 1
        assert found == [3, 4], place
        failure = call("Event_Await", ENTRIES["Event_Await"](0, None, event))
        assert (0 if failure is None else message_of(failure)[0]) == status, place
        assert call("Event_Destroy", ENTRIES["Event_Destroy"](0, None, event)) is None
    assert places > 20


def test_a_thread_forgets_nothing_that_the_main_thread_has_bound() -> None:
    first = len(handles.fresh)
    found = handles.new("something")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(handles.forget, first).result()
        pool.submit(handles.hand_over, first).result()
    assert (handles.find(found), handles.fresh[first:]) == ("something", [found])
    handles.forget(first)
    assert (handles.find(found), handles.fresh[first:]) == (None, [])


def client_of_two_processes() -> tuple[int, str]:
    """The error of a client that is one of two, in a process that `jax.distributed` has not initialised."""
    name = CBytes("num_nodes")
    options = STRUCTURES["NamedValue"](0, None, name.address, name.size, 1, 2, 1)
    return message_of(call("Client_Create", ENTRIES["Client_Create"](0, None, ctypes.addressof(options), 1)))


def test_several_processes_need_the_coordination_service_of_jax() -> None:
    code, text = client_of_two_processes()
    assert code == 9
    assert "jax.distributed has not been initialised" in text


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ArgumentError("a"), 3),
        (UnsupportedOpError("a"), 12),
        (OutOfMemoryError("a"), 8),
        (ReplicaLostError("a"), 14),
        (KeyboardInterrupt(), 1),
        (ValueError("a"), 13),
    ],
)
def test_codes_of_errors(failure: BaseException, code: int) -> None:
    assert errors.error_of(failure).code == code


def test_a_stub_keeps_a_pending_exception() -> None:
    """C++ destructors call entry points while an exception is on its way."""
    args = ENTRIES["Executable_Destroy"](0, None, handles.new(CBytes("something")))
    words = (ctypes.c_uint64 * 46).from_address(plugin.table().address)
    kind = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.pythonapi, "PyExc_ValueError"))
    text = ctypes.create_string_buffer(b"kept")
    set_error = ctypes.cast(ctypes.pythonapi.PyErr_SetString, ctypes.c_void_p).value
    module = binding.parse_assembly(f"""
        define ptr @raising(ptr %args) {{
          %kind = load ptr, ptr inttoptr (i64 {kind} to ptr)
          call void inttoptr (i64 {set_error} to ptr)(ptr %kind, ptr inttoptr (i64 {ctypes.addressof(text)} to ptr))
          %found = call ptr inttoptr (i64 {words[45]} to ptr)(ptr %args)
          ret ptr %found
        }}""")
    engine = binding.create_mcjit_compiler(module, binding.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    with pytest.raises(ValueError, match="kept"):
        FUNCTION(engine.get_function_address("raising"))(ctypes.addressof(args))
    assert handles.find(args.executable) is None  # the stub has run


def test_an_interrupt_is_delivered_by_the_main_threads_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SWITCH, "interrupts", 1)
    name = "Client_CreateAliasBuffer"  # calls Python
    with ThreadPoolExecutor(1) as pool:
        message_of(pool.submit(call, name, ENTRIES[name]()).result())
        assert pool.submit(late.is_late).result() is False
    assert late.is_late()
    with pytest.raises(KeyboardInterrupt):
        call(name, ENTRIES[name]())
    assert not SWITCH.interrupts


class Late:
    """A call that an interrupt has ended, and whose queue has not told anybody yet."""

    error = ClusterError("interrupted")
    is_over = True

    def interrupt(self) -> None: ...

    def wait(self) -> None:
        raise self.error

    def then(self, told: Callable[[Any], object]) -> None:
        self.told = told


def test_what_the_main_thread_waits_for_has_no_error_amid_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda error, user: found.append(error))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    late = Late()
    event = Event(late, waits=True)
    monkeypatch.setattr(SWITCH, "interrupts", 1)
    event.on_ready(address, 0, [])
    monkeypatch.setattr(SWITCH, "interrupts", 0)  # as the stub has it at its end
    late.told(late)
    assert found == [None]
    event.on_ready(address, 0, [])
    assert "interrupted" in message_of(found[1])[1]


def test_statistics_of_memory_begin_anew() -> None:
    heap = Heap(1 << 20, [])
    device = handles.new(SimpleNamespace(client=SimpleNamespace(heap=lambda: heap)))
    heap.allocate(8192).free()
    held = heap.allocate(4096)
    told = ENTRIES["Device_MemoryStats"](0, None, device)
    for peak, count in ((8192, 2), (4096, 0)):
        assert call("Device_MemoryStats", told) is None
        assert (told.bytes_in_use, told.peak_bytes_in_use, told.num_allocs) == (4096, peak, count)
        assert (told.peak_bytes_in_use_is_set, told.bytes_limit, told.pool_bytes_is_set) == (True, 1 << 20, False)
        assert call("Device_ClearMemoryStats", ENTRIES["Device_ClearMemoryStats"](0, None, device)) is None
    held.free()
    handles.release(device)


def test_parameters_have_memory_kinds() -> None:
    executable = handles.new(SimpleNamespace(parameter_kinds=MemoryKindNames([1, 0])))
    told = ENTRIES["Executable_ParameterMemoryKinds"](0, None, executable)
    assert call("Executable_ParameterMemoryKinds", told) is None
    sizes = handles.integers(told.memory_kind_sizes, told.num_parameters)
    places = handles.integers(told.memory_kinds, told.num_parameters)
    assert [ctypes.string_at(*found) for found in zip(places, sizes)] == [b"pinned_host", b"device"]
    handles.release(executable)


def test_layouts_have_their_fields_where_c_has_them() -> None:
    assert offset(ENTRIES["LoadedExecutable_Execute"], "execute_device") == 72
    assert offset(STRUCTURES["ExecuteOptions"], "non_donatable_input_indices") == 56
    assert offset(STRUCTURES["MemoryLayout"], "type") == 72


def test_device_assignments() -> None:
    ids = [[3, 1, 300], [0, 2, 5]]
    assert device_ids(device_assignment(ids)) == ids
    # of jaxlib: DeviceAssignment.create([[3, 1]]).serialize()
    assert device_assignment([[3, 1]]) == b"\x08\x01\x10\x02\x1a\x03\n\x01\x03\x1a\x03\n\x01\x01"
