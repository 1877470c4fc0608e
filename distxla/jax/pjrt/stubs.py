"""The functions of the C table, made with LLVM: native getters, and stubs that call Python.

C++ destructors call entry points while a Python exception is pending, and threads of XLA call them without the GIL. So
a stub takes the GIL, puts a pending exception aside, calls Python, and restores it. Where the interpreter has ended, a
stub fails without Python.

A signal handler of Python may raise in the callback's first line, where nothing can catch it: then the stub calls
again. Only in the main thread: no other handles signals. What is to be raised later (late.py) Python raises as soon as
it goes on: the stub has it called then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from distxla.emit.native_function import field_of
from distxla.jax.pjrt.kept_code import loaded
from distxla.jax.pjrt.native_module import PYTHON
from distxla.jax.pjrt.switch import SWITCH, Switch
from distxla.jax.pjrt.table import EMPTY, ENTRIES, FATAL, MARKS, RECORDS, WHOLE, natives, offset, outputs

_PYTHON: Final = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyErr_SetInterrupt",
    "PyErr_SetObject",
    "PyObject_Type",
    "Py_AddPendingCall",
    "Py_DecRef",
    "Py_IsInitialized",
)
# what the code finds in this process, by the names that it has there
_SWITCH, _CALLBACK, _TRIED, _EMERGENCY = "distxla_switch_", "distxla_callback_", "distxla_try_", "distxla_emergency"
_ENTER: Final = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare void @PyErr_SetInterrupt()
declare void @PyErr_SetObject(ptr, ptr)
declare ptr @PyObject_Type(ptr)
declare i32 @Py_AddPendingCall(ptr, ptr)
declare void @Py_DecRef(ptr)
declare i32 @Py_IsInitialized()
declare i64 @pthread_self()

define i32 @deliver(ptr %unused) {{
  store i32 0, ptr {is_queued}, align 4
  %late = load i64, ptr {late}, align 8
  %is_none = icmp eq i64 %late, 0
  br i1 %is_none, label %nothing, label %something
nothing:
  ret i32 0
something:
  store i64 0, ptr {late}, align 8
  %error = inttoptr i64 %late to ptr
  %type = call ptr @PyObject_Type(ptr %error)
  call void @PyErr_SetObject(ptr %type, ptr %error)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %error)
  ret i32 -1
}}

define ptr @enter(ptr %callback, ptr %args, ptr %otherwise) {{
  %alive = call i32 @Py_IsInitialized()
  %is_dead = icmp eq i32 %alive, 0
  br i1 %is_dead, label %leave, label %inside
leave:
  ret ptr %otherwise
inside:
  %state = call i32 @PyGILState_Ensure()
  %self = call i64 @pthread_self()
  %main = load i64, ptr {main}, align 8
  %is_main = icmp eq i64 %self, %main
  %asks = zext i1 %is_main to i32
  %kind = alloca ptr
  %value = alloca ptr
  %trace = alloca ptr
  %slot = alloca i64
  call void @PyErr_Fetch(ptr %kind, ptr %value, ptr %trace)
  br label %attempt
attempt:
  %attempts = phi i32 [ 0, %inside ], [ %more, %again ]
  store i64 0, ptr %slot
  call void %callback(ptr %args, ptr %slot)
  %found = load i64, ptr %slot
  %has_failed = icmp eq i64 %found, 0
  br i1 %has_failed, label %again, label %answered
again:
  %asked_before = load i32, ptr {interrupts}, align 4
  %asked_now = or i32 %asked_before, %asks
  store i32 %asked_now, ptr {interrupts}, align 4
  %more = add i32 %attempts, 1
  %is_last = icmp eq i32 %more, {attempts}
  br i1 %is_last, label %given_up, label %attempt
answered:
  %is_success = icmp eq i64 %found, {success}
  %error = inttoptr i64 %found to ptr
  %result = select i1 %is_success, ptr null, ptr %error
  br label %given_up
given_up:
  %answer = phi ptr [ %otherwise, %again ], [ %result, %answered ]
  %kind_before = load ptr, ptr %kind
  %value_before = load ptr, ptr %value
  %trace_before = load ptr, ptr %trace
  call void @PyErr_Restore(ptr %kind_before, ptr %value_before, ptr %trace_before)
  %late = load i64, ptr {late}, align 8
  %is_late = icmp ne i64 %late, 0
  br i1 %is_late, label %defer, label %look
defer:
  store i32 0, ptr {interrupts}, align 4
  %queued = load i32, ptr {is_queued}, align 4
  %is_queued = icmp ne i32 %queued, 0
  br i1 %is_queued, label %look, label %queue
queue:
  %added = call i32 @Py_AddPendingCall(ptr @deliver, ptr null)
  %is_added = icmp eq i32 %added, 0
  %now = zext i1 %is_added to i32
  store i32 %now, ptr {is_queued}, align 4
  br label %look
look:
  %asked = load i32, ptr {interrupts}, align 4
  %is_anybodys = icmp ne i32 %asked, 0
  %is_asked = and i1 %is_anybodys, %is_main
  br i1 %is_asked, label %interrupt, label %end
interrupt:
  store i32 0, ptr {interrupts}, align 4
  call void @PyErr_SetInterrupt()
  br label %end
end:
  call void @PyGILState_Release(i32 %state)
  ret ptr %answer
}}
"""


_ATTEMPTS: Final = 4
SUCCESS: Final = 1
"""The answer of a callback that has no error; where it has raised, there is no answer."""


class Stubs:
    """A native function for each entry point. addresses: of the functions, by the names of the entry points."""

    def __init__(self, callbacks: Mapping[str, Any], emergency: int, tried: Mapping[str, int]) -> None:
        """callbacks: ctypes functions (address of the arguments, address of the answer): they write the address of a
        PJRT_Error there, or SUCCESS. The GIL is held and no exception is pending when they are called.
        emergency: the PJRT_Error for those that have raised, and once the interpreter has ended; FATAL entry points
        have none: their outputs are zero then.
        tried: addresses of native functions that are called first, and say whether Python has to be called.
        """
        self._tried = dict(tried)
        self._callbacks = dict(callbacks)  # which the code calls
        addresses = {name: _address(getattr(ctypes.pythonapi, name)) for name in _PYTHON}
        addresses |= {_SWITCH + name: ctypes.addressof(SWITCH) + offset(Switch, name) for name, _ in Switch._fields_}
        addresses |= {_CALLBACK + name: _address(callback) for name, callback in self._callbacks.items()}
        addresses |= {_TRIED + name: address for name, address in self._tried.items()}
        self._engine = loaded(self._text(), {**addresses, _EMERGENCY: emergency})  # the code lives as long
        self._deliver = int(self._engine.get_function_address("deliver"))
        self.addresses = {name: int(self._engine.get_function_address(f"pjrt_{name}")) for name in ENTRIES}

    def deliver(self) -> None:
        """Have the main thread raise what is late as soon as it runs Python. For other threads: a call in the main one
        would raise it in the caller."""
        if SWITCH.late and not SWITCH.is_queued:
            SWITCH.is_queued = 1
            if ctypes.pythonapi.Py_AddPendingCall(ctypes.c_void_p(self._deliver), None):
                SWITCH.is_queued = 0  # too many are queued: the next entry point does it

    def _text(self) -> str:
        fields = {name: f"@{_SWITCH}{name}" for name, _ in Switch._fields_}
        records = [*fields.values(), f"@{_EMERGENCY}", *(f"@{_CALLBACK}{name}" for name in self._callbacks)]
        parts = [f"{record} = external global i8" for record in records]
        parts += [f"declare i32 @{_TRIED}{name}(ptr)" for name in self._tried]
        parts.append(_ENTER.format(**fields, attempts=_ATTEMPTS, success=SUCCESS))
        return "\n".join([*parts, *(self._function(name) for name in ENTRIES)])

    def _function(self, name: str) -> str:
        if name in natives():
            body = _getter(name)
        elif name in MARKS:
            body = _mark(name)
        elif name in EMPTY:
            body = "  ret ptr null\n"
        elif name in WHOLE:
            body = f"  %d = call i32 @{_TRIED}{name}(ptr %args)\n  ret ptr null\n"
        else:
            otherwise = "null" if name in FATAL else f"@{_EMERGENCY}"
            body = f"  %e = call ptr @enter(ptr @{_CALLBACK}{name}, ptr %args, ptr {otherwise})\n  ret ptr %e\n"
            if name in FATAL:
                body = _zeros(name) + body
            if name in self._tried:
                body = _try(name) + body
        return f"define ptr @pjrt_{name}(ptr %args) {{\n{body}}}\n"


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


def _zeros(name: str) -> str:
    """Writes zeros into what the entry point is to write."""
    text, entry = "", ENTRIES[name]
    for n, field in enumerate(outputs(name)):
        found, place = field_of(entry, field)
        text += f"  %z{n} = getelementptr i8, ptr %args, i64 {place}\n  store {found} zeroinitializer, ptr %z{n}\n"
    return text


def _try(name: str) -> str:
    return (
        f"  %d = call i32 @{_TRIED}{name}(ptr %args)\n  %is_done = icmp ne i32 %d, {PYTHON}\n"
        "  br i1 %is_done, label %done, label %python\ndone:\n  ret ptr null\npython:\n"
    )


def _mark(name: str) -> str:
    """Sets a byte of the record that a handle points to, if it is not null."""
    argument, record, field = MARKS[name]
    return (
        f"  %a = getelementptr i8, ptr %args, i64 {offset(ENTRIES[name], argument)}\n  %h = load ptr, ptr %a\n"
        "  %is_null = icmp eq ptr %h, null\n  br i1 %is_null, label %end, label %mark\nmark:\n"
        f"  %f = getelementptr i8, ptr %h, i64 {offset(RECORDS[record], field)}\n  store i8 1, ptr %f\n"
        "  br label %end\nend:\n  ret ptr null\n"
    )


def _getter(name: str) -> str:
    """Copies fields of the record that a handle points to into the arguments."""
    entry = ENTRIES[name]
    argument, record_name, pairs = natives()[name]
    record = RECORDS[record_name]
    text = f"  %a = getelementptr i8, ptr %args, i64 {offset(entry, argument)}\n  %h = load ptr, ptr %a\n"
    for n, (out, field) in enumerate(pairs):
        (found, source), (wanted, place) = field_of(record, field), field_of(entry, out)
        assert found == wanted, f"{name}: {out}"
        text += (
            f"  %f{n} = getelementptr i8, ptr %h, i64 {source}\n"
            f"  %v{n} = load {found}, ptr %f{n}\n"
            f"  %o{n} = getelementptr i8, ptr %args, i64 {place}\n"
            f"  store {found} %v{n}, ptr %o{n}\n"
        )
    return text + "  ret ptr null\n"


__all__ = ["SUCCESS", "Stubs"]
