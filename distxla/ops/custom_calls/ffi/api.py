"""XLA_FFI_Api: the functions that a handler may call. One table a process, made when the first handler is loaded.

Objects that handlers see as pointers (errors, futures, contexts) are numbers here, never addresses.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any, Final

from distxla.lazy_dataclass import dataclass, field
from distxla.ops.custom_calls.ffi.layout import (
    CODES,
    MAJOR,
    MINOR,
    ApiVersion,
    Attributes,
    ByteSpan,
    Stage,
    size_until,
)

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_HEAD: Final = (("struct_size", _SIZE), ("extension_start", _POINTER))
_LIBC: Final = ctypes.CDLL(None)
_FIRST: Final = 0x10  # number of the first object: none is a null pointer


@dataclass
class _Error:
    code: int
    message: bytes  # ends with a zero


@dataclass
class _Future:
    done: threading.Event = field(default_factory=threading.Event)
    error: int = 0


@dataclass
class Context:
    """What one call of a handler can ask for. states: by stage, (type, address)."""

    device: int
    run: int
    states: dict[int, tuple[int, int]] = field(default_factory=dict)


class Api:
    """The table, and the objects behind its numbers. Handlers of several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(_FIRST)
        self._objects: dict[int, Any] = {}
        self._types: dict[bytes, int] = {}
        self._deleters: dict[int, int] = {}
        self._keep: list[Any] = []
        self._no_options = Attributes(size_until(Attributes, "values"), None, 0, None, None, None)
        self._table = self._made()
        self.address = ctypes.addressof(self._table)

    # --- for the caller of handlers

    def enter(self, thing: object) -> int:
        """Give an object a number."""
        with self._lock:
            number = next(self._numbers)
            self._objects[number] = thing
            return number

    def leave(self, number: int) -> Any:
        """Forget an object."""
        return self._objects.pop(number, None)

    def take_error(self, number: int) -> str:
        """`INVALID_ARGUMENT: the message` of an error, which is gone then."""
        error = self.leave(number)
        if not isinstance(error, _Error):
            return "INTERNAL: a handler returned something that is no error"
        code = CODES[error.code] if 0 <= error.code < len(CODES) else str(error.code)
        return f"{code}: {error.message[:-1].decode(errors='replace')}"

    def await_future(self, number: int) -> str | None:
        """Block until a handler's future is set; its error, if it has one."""
        future = self._objects.get(number)
        if not isinstance(future, _Future):
            return "INTERNAL: a handler returned something that is no future"
        future.done.wait()
        self.leave(number)
        return self.take_error(future.error) if future.error else None

    def delete_state(self, kind: int, address: int) -> None:
        """Call the deleter of a state's type, if that has one."""
        deleter = self._deleters.get(kind, 0)
        if deleter and address:
            ctypes.CFUNCTYPE(None, _POINTER)(deleter)(address)

    # --- the table

    def _made(self) -> Any:
        names = [name for name, _ in self._functions()]
        fields = [*_HEAD, ("version", ApiVersion), ("internal", _POINTER), *((name, _POINTER) for name in names)]
        table_type = type("FfiApi", (ctypes.Structure,), {"_fields_": fields})
        version = ApiVersion(size_until(ApiVersion, "minor"), None, MAJOR, MINOR)
        table: Any = table_type(size_until(table_type, names[-1]), None, version, None)
        for name, function in self._functions():
            self._keep.append(function)
            setattr(table, name, ctypes.cast(function, _POINTER).value)
        return table

    def _functions(self) -> list[tuple[str, Any]]:
        """In the order of the header."""
        error, handle = ctypes.CFUNCTYPE(_POINTER, _POINTER), ctypes.CFUNCTYPE(None, _POINTER)
        kinds = {"error_get_details": handle, "error_destroy": handle}
        names = (
            "error_create", "error_get_details", "error_destroy", "handler_register", "stream_get", "type_register",
            "context_get", "state_set", "state_get", "memory_allocate", "memory_free", "schedule", "threads",
            "future_create", "future_set", "future_fail", "run_id", "device_ordinal", "find_extension", "options",
        )  # fmt: skip
        return [(name, kinds.get(name, error)(self._guarded(getattr(self, f"_{name}")))) for name in names]

    def _guarded(self, function: Callable[[int], int | None]) -> Callable[[int], int | None]:
        """Nothing may pass through native frames."""

        def call(arguments: int) -> int | None:
            try:
                return function(arguments)
            except BaseException as error:
                return self._error("INTERNAL", f"{type(error).__name__}: {error}")

        return call

    def _error(self, code: str, message: str) -> int:
        return self.enter(_Error(CODES.index(code), message.encode() + b"\0"))

    def _context(self, number: int) -> Context:
        found = self._objects[number]
        assert isinstance(found, Context)
        return found

    def _error_create(self, at: int) -> int:
        arguments = _arguments(at, ("message", ctypes.c_char_p), ("code", _INT))
        return self.enter(_Error(arguments.code, (arguments.message or b"") + b"\0"))

    def _error_get_details(self, at: int) -> None:
        arguments = _arguments(at, ("error", _POINTER), ("message", _POINTER), ("code", _INT))
        error = self._objects[arguments.error]
        arguments.message = ctypes.cast(ctypes.c_char_p(error.message), _POINTER).value
        if arguments.struct_size >= size_until(type(arguments), "code"):  # older headers ask for the message only
            arguments.code = error.code

    def _error_destroy(self, at: int) -> None:
        self.leave(_arguments(at, ("error", _POINTER)).error)

    def _handler_register(self, at: int) -> int:
        return self._error("UNIMPLEMENTED", "handlers are registered by distxla.register_custom_call")

    def _stream_get(self, at: int) -> int:
        return self._error("UNIMPLEMENTED", "a device of distxla has no stream")

    def _type_register(self, at: int) -> int | None:
        arguments = _arguments(at, ("name", ByteSpan), ("type", _POINTER), ("info", _POINTER))
        name = ctypes.string_at(arguments.name.ptr, arguments.name.len)
        wanted = ctypes.c_int64.from_address(arguments.type)
        with self._lock:
            known = self._types.setdefault(name, wanted.value or len(self._types) + 1)
        if wanted.value not in (0, known):
            return self._error("INVALID_ARGUMENT", f"type {name.decode(errors='replace')} has another id: {known}")
        wanted.value = known
        if arguments.info:
            self._deleters[known] = _arguments(arguments.info, ("deleter", _POINTER)).deleter or 0
        return None

    def _context_get(self, at: int) -> int:
        return self._error("NOT_FOUND", "a call has no user data")

    def _state_set(self, at: int) -> int | None:
        arguments = _state_arguments(at)
        states = self._context(arguments.context).states
        if arguments.stage in states:
            return self._error("ALREADY_EXISTS", f"stage {Stage(arguments.stage).name} has a state already")
        states[arguments.stage] = ctypes.c_int64.from_address(arguments.type).value, arguments.state or 0
        return None

    def _state_get(self, at: int) -> int | None:
        arguments = _state_arguments(at)
        found = self._context(arguments.context).states.get(arguments.stage)
        if found is None:
            return self._error("NOT_FOUND", f"stage {Stage(arguments.stage).name} has set no state")
        if found[0] != ctypes.c_int64.from_address(arguments.type).value:
            return self._error("INVALID_ARGUMENT", "the state is of another type")
        arguments.state = found[1]
        return None

    def _memory_allocate(self, at: int) -> int | None:
        arguments = _arguments(at, ("context", _POINTER), ("size", _SIZE), ("alignment", _SIZE), ("data", _POINTER))
        place, alignment = _POINTER(), max(8, arguments.alignment)
        size = _SIZE(max(1, arguments.size))
        if _LIBC.posix_memalign(ctypes.byref(place), _SIZE(alignment), size):
            return self._error("RESOURCE_EXHAUSTED", f"no {arguments.size} bytes with alignment {alignment}")
        arguments.data = place.value
        return None

    def _memory_free(self, at: int) -> None:
        arguments = _arguments(at, ("context", _POINTER), ("size", _SIZE), ("data", _POINTER))
        _LIBC.free(_POINTER(arguments.data))

    def _schedule(self, at: int) -> None:
        """A pool of one thread: the caller's."""
        arguments = _arguments(at, ("context", _POINTER), ("task", _POINTER), ("data", _POINTER))
        ctypes.CFUNCTYPE(None, _POINTER)(arguments.task)(arguments.data)

    def _threads(self, at: int) -> None:
        arguments = _arguments(at, ("context", _POINTER), ("count", _POINTER))
        ctypes.c_int64.from_address(arguments.count).value = 1

    def _future_create(self, at: int) -> None:
        _arguments(at, ("future", _POINTER)).future = self.enter(_Future())

    def _future_set(self, at: int) -> None:
        self._objects[_arguments(at, ("future", _POINTER)).future].done.set()

    def _future_fail(self, at: int) -> None:
        arguments = _arguments(at, ("future", _POINTER), ("error", _POINTER))
        future = self._objects[arguments.future]
        future.error = arguments.error or 0
        future.done.set()

    def _run_id(self, at: int) -> None:
        arguments = _arguments(at, ("context", _POINTER), ("run", ctypes.c_int64))
        arguments.run = self._context(arguments.context).run

    def _device_ordinal(self, at: int) -> None:
        arguments = _arguments(at, ("context", _POINTER), ("device", ctypes.c_int32))
        arguments.device = self._context(arguments.context).device

    def _find_extension(self, at: int) -> int:
        return self._error("NOT_FOUND", "a call has no extensions")

    def _options(self, at: int) -> None:
        arguments = _arguments(at, ("context", _POINTER), ("attributes", _POINTER))
        arguments.attributes = ctypes.addressof(self._no_options)


_structures: dict[tuple[Any, ...], type[ctypes.Structure]] = {}


def _arguments(at: int, *fields: tuple[str, Any]) -> Any:
    """The structure of arguments at an address: a size, extensions, and these fields."""
    found = _structures.get(fields)
    if found is None:
        found = _structures[fields] = type("FfiArguments", (ctypes.Structure,), {"_fields_": [*_HEAD, *fields]})
    return found.from_address(at)


def _state_arguments(at: int) -> Any:
    return _arguments(at, ("context", _POINTER), ("stage", _INT), ("type", _POINTER), ("state", _POINTER))


_api: list[Api] = []
_making = threading.Lock()


def api() -> Api:
    """The process's table."""
    with _making:
        if not _api:
            _api.append(Api())
        return _api[0]
