"""The plugin as JAX finds it: the C table, and its registration under the name "distxla"."""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from distxla.errors import InternalError
from distxla.jax.pjrt import buffers, client, devices, events, executables, handles, late
from distxla.jax.pjrt.devices import NAME, OWN, PLATFORM, is_ours
from distxla.jax.pjrt.errors import INTERNAL, Interrupted, PjrtError, new_error
from distxla.jax.pjrt.events import failed_event
from distxla.jax.pjrt.handles import NOTHING_TO_DELETE, Once
from distxla.jax.pjrt.host_callbacks import HOST_CALLBACKS
from distxla.jax.pjrt.native_functions import native_functions
from distxla.jax.pjrt.plans import NativeBlock
from distxla.jax.pjrt.stubs import SUCCESS, Stubs
from distxla.jax.pjrt.table import ENTRIES, FATAL, MAJOR, MINOR, STRUCTURES, is_native, outputs
from distxla.jax.private.backends import (
    Names,
    around_compilation,
    estimate_costs_of_lowered,
    is_plugin_chosen,
    is_plugin_registered,
    live_clients,
    register_plugin,
    require_plugin_versions,
    wanted_platforms,
)
from distxla.jax.private.lowering import lower_for_clients

NAMES: Final = Names(plugin=NAME, platform=PLATFORM, own=OWN)
"""`cpu` means distxla's devices. JAX's own are there, too: what callbacks compute runs there, while devices wait."""
_CAPSULE: Final = b"pjrt_c_api"
_CALLBACK: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # the stub has taken the GIL
_ANSWER: Final = ctypes.c_uint64.from_address

Entry = Callable[[Any], int | None]


def _attributes(args: Any) -> None:
    args.attributes, args.num_attributes = None, 0


_IMPLEMENTED: Final[dict[str, Entry]] = {
    "Plugin_Attributes": _attributes,
    **buffers.ENTRIES,
    **client.ENTRIES,
    **devices.ENTRIES,
    **events.ENTRIES,
    **executables.ENTRIES,
}
_ONCE: Final = buffers.ONCE | events.ONCE


def _once(entry: Callable[[Any, Once], None]) -> Entry:
    """The entry point with what it knows of one call."""
    once = Once()
    return lambda args: entry(args, once)


# those that know what was done before an interrupt
_RESUMED: Final[dict[str, Callable[[], Entry]]] = {
    "Event_OnReady": events.Registration,
    "Event_Set": events.Setting,
    "LoadedExecutable_Execute": executables.Execution,
    **{name: partial(_once, entry) for name, entry in _ONCE.items()},
}
_ATTEMPTS: Final = 20  # to run an entry point in spite of interrupts
# those that an interrupt ends with an error; the others are done again, and their waits end at once
_LONG: Final = frozenset({"Client_Compile", "Client_Create", "Executable_DeserializeAndLoad"})
# JAX raises all errors of these, so they also return the failures that FATAL entry points have kept
_RAISING: Final = _LONG | frozenset(
    {
        "Buffer_CopyRawToHost",
        "Buffer_CopyToDevice",
        "Buffer_CopyToMemory",
        "Buffer_OpaqueDeviceMemoryDataPointer",
        "Buffer_ToHostBuffer",
        "Buffer_UnsafePointer",
        "Client_BufferFromHostBuffer",
        "Client_CreateUninitializedBuffer",
        "Client_CreateViewOfDeviceBuffer",
        "Device_MemoryStats",
        "LoadedExecutable_Execute",
    }
)


def _missing(name: str) -> Entry:
    def missing(args: Any) -> int | None:
        raise NotImplementedError(f"PJRT_{name} is not implemented by distxla")

    return missing


def is_implemented(name: str) -> bool:
    """Whether an entry point does something but raise; `name` as in the C header, without PJRT_."""
    return name in _IMPLEMENTED or name in _ONCE or is_native(name)


class Table:
    """PJRT_Api. address: of the table; it and its functions live as long as this."""

    def __init__(self) -> None:
        self._functions: set[Any] = set()
        self._kept: dict[BaseException, None] = {}  # failures of FATAL entry points, for the next one that is _RAISING
        called = [name for name in ENTRIES if not is_native(name)]
        self._emergency = PjrtError(
            INTERNAL, "distxla: Python could not run the plugin: the stack or memory is exhausted"
        )
        callbacks = {name: self._callback(name) for name in called}
        self._stubs = Stubs(callbacks, self._emergency.handle, native_functions().entry_points)
        version = ctypes.sizeof(STRUCTURES["ApiVersion"])
        begin = 16 + version
        size = begin + 8 * len(ENTRIES)
        self._table = (ctypes.c_uint64 * (size // 8))()
        self.address = ctypes.addressof(self._table)
        self._table[0] = size
        found = STRUCTURES["ApiVersion"].from_address(self.address + 16)
        found.struct_size, found.major, found.minor = version, MAJOR, MINOR
        for number, name in enumerate(ENTRIES):
            self._table[begin // 8 + number] = self._stubs.addresses[name]
        self._hush()
        os.register_at_fork(after_in_child=_leave_to_the_parent)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # C++ has it when Python's modules are gone

    def _callback(self, name: str) -> Any:
        """A C function that calls the entry point; whatever it raises becomes a PJRT_Error."""
        view = ENTRIES[name].from_address
        entry = _IMPLEMENTED.get(name) or _missing(name)
        is_long, is_fatal, raises = name in _LONG, name in FATAL, name in _RAISING
        begin = _RESUMED.get(name, lambda: entry)

        def answered(failure: BaseException, args: Any) -> int:
            """What C++ hears of a failure; 0 where the entry point is to be called again."""
            if isinstance(failure, Interrupted):  # amid a wait, of which C++ hears that it is over
                return SUCCESS
            if late.is_of_handler(failure):
                late.defer(failure)
                return new_error(failure) if is_long else 0
            if is_fatal:
                self._keep(name, failure, args)
                return SUCCESS
            return new_error(failure, f"PJRT_{name}")

        def call(address: int, answer: int) -> None:
            found, run, failure, told, first = 0, None, None, None, len(handles.fresh)
            for _ in range(_ATTEMPTS):  # a handler may raise at any line
                try:
                    if failure is not None and found:  # after its end
                        late.defer(failure)
                        failure = None
                    elif failure is not None:
                        told = None
                        if not isinstance(run, executables.Execution) or not run.is_submitted:
                            handles.forget(first)
                        found = answered(failure, view(address))
                        failure = None
                    elif not found:
                        if raises and self._kept:
                            told = self._first_kept()
                        if run is None:
                            run = begin()
                        found = new_error(told) if told is not None else run(view(address)) or SUCCESS
                    if found:
                        if told is not None:
                            self._kept.pop(told, None)
                        handles.hand_over(first)
                        _ANSWER(answer).value = found
                        return
                except BaseException as error:
                    failure = error
            raise InternalError(f"PJRT_{name} failed {_ATTEMPTS} times") from failure

        call.__qualname__ = f"PJRT_{name}"  # for messages
        self._functions.add(call)
        return _CALLBACK(call)

    def _first_kept(self) -> BaseException | None:
        """A failure that was kept, unless another thread has told the last one, or this is to raise something else."""
        return None if late.is_late() else next(iter(list(self._kept)), None)

    def _keep(self, name: str, failure: BaseException, args: Any) -> None:
        """Keep a failure for a later entry point, and write outputs that C++ can read."""
        failure.add_note(f"in PJRT_{name}, which cannot fail")
        for field in outputs(name):
            if field == "event":
                args.event = failed_event(failure)
                return  # which tells it
            setattr(args, field, NOTHING_TO_DELETE if field.endswith("_deleter") else 0)
        self._kept[failure] = None

    def _hush(self) -> None:
        """Keep what a handler raises in the first line of a callback, or in a finaliser, which is then called again.
        Python does not print it then. Also what was deferred and then raised where Python ignores exceptions."""
        before, functions = sys.unraisablehook, self._functions
        finalisers = [kind.__del__ for kind in (buffers.Buffer, events.Event, NativeBlock)]

        def defer_ignored(error: BaseException) -> None:
            late.defer(error)
            # which runs when this thread has left the place that ignores exceptions, or blocks in it
            _thread.start_new_thread(self._stubs.deliver, ())

        def kept(found: Any) -> None:
            text = found.err_msg or ""  # has the function from Python 3.13 on
            is_ours = found.object in functions or any(repr(function) in text for function in functions)
            is_finaliser = found.object in finalisers
            if not (is_ours or is_finaliser) and late.was_deferred(found.exc_value):
                defer_ignored(found.exc_value)
                return
            if not (is_ours or is_finaliser) or not late.is_of_handler(found.exc_value):
                before(found)
                return
            trace = found.exc_traceback
            while is_finaliser and trace is not None:
                if trace.tb_frame.f_code is found.object.__code__:
                    found.object(trace.tb_frame.f_locals["self"])
                trace = trace.tb_next
            late.defer(found.exc_value)  # last: another thread's entry would have it raised here

        def hook(found: Any) -> None:
            again: BaseException | None = None
            while True:
                try:
                    if again is None:
                        kept(found)
                    else:
                        defer_ignored(again)
                    return
                except BaseException as error:  # what was deferred arrives amid this, where it would be ignored, too
                    if not late.was_deferred(error):
                        raise
                    again = error

        sys.unraisablehook = hook


def _leave_to_the_parent() -> None:
    """In a forked child: the clients of XLA have threads that are not there, and must not be destroyed."""
    for found in live_clients():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))


@cache
def table() -> Table:
    """The process's table."""
    return Table()


def capsule() -> Any:
    """The table as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(table().address, _CAPSULE, None)


def initialize() -> None:
    """JAX calls this in every process that has the package: register the backend where the platform is asked for.

    JaxError for versions of jaxlib whose structures are not those of the table.
    """
    if NAME in wanted_platforms():
        register()
    elif is_plugin_registered(NAME):
        if not is_plugin_chosen(NAME):
            warn_of_other_platforms()
    elif NAME in os.environ.get("JAX_PLATFORMS", "").split(","):
        warn_of_other_platforms()


def warn_of_other_platforms() -> None:
    """Say on stderr, once, that JAX's configuration leads away from devices that were asked for."""
    asked = "distxla.jax.install" if is_plugin_registered(NAME) else "JAX_PLATFORMS"
    warn(f"jax_platforms is {','.join(wanted_platforms())!r}, although {asked} asked for distxla's devices")


@cache
def warn(message: str) -> None:
    print(f"distxla: {message}", file=sys.stderr)


def register() -> None:
    """Register the backend with JAX, once. JaxError for versions of jaxlib that the table does not fit."""
    require_plugin_versions()
    if not is_plugin_registered(NAME):
        around_compilation(HOST_CALLBACKS.around)
        estimate_costs_of_lowered(is_ours, OWN)
        lower_for_clients(is_ours)
        register_plugin(NAMES, capsule(), priority=500, not_chosen=warn_of_other_platforms)


__all__ = ["NAME", "Table", "capsule", "initialize", "is_implemented", "register", "table"]
