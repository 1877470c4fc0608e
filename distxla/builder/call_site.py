"""Where in the caller's program a method of the builder was called, and with which arguments."""

from __future__ import annotations

import linecache
import os
import sys
from inspect import CO_VARARGS
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from distxla.ir.instruction import Metadata
from distxla.lazy_dataclass import dataclass
from distxla.location import Location

_BUILDER = os.path.dirname(__file__) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call in the caller's own file.

    method: the method of the builder (`add` for an operator).  line: from 1.  code, instruction: where the columns can
    be looked up, which takes time and is put off until an error shows them.
    """

    file: str
    line: int
    method: str
    code: CodeType
    instruction: int

    def metadata(self, scope: str) -> Metadata:
        """The metadata of the instruction in the HLO text: the caller's line, and `scope/method` as op_name."""
        name = "/".join(part for part in (scope, self.method.rstrip("_")) if part)
        return Metadata((("op_name", name), ("source_file", self.file), ("source_line", self.line)))

    def location(self) -> Location:
        """The line with the columns of the call, from the file as it is now."""
        positions = next(islice(self.code.co_positions(), self.instruction // 2, None), (None,) * 4)
        first, last, column, end_column = positions
        line = first or self.line
        text = linecache.getline(self.file, line).rstrip("\n")
        if column is None or end_column is None:
            return Location(self.file, line, 1, len(text) + 1, text)
        # Columns count bytes of UTF-8.
        start = len(text.encode()[:column].decode(errors="ignore"))
        end = len(text.encode()[:end_column].decode(errors="ignore")) if last == line else len(text)
        return Location(self.file, line, start + 1, max(start + 2, end + 1), text)


def call_site() -> CallSite:
    """The call that brought the program into the builder, seen from the first frame outside of distxla."""
    caller, method = _frames()
    name = "" if method is None else method.f_code.co_name
    return CallSite(caller.f_code.co_filename, caller.f_lineno, name, caller.f_code, caller.f_lasti)


def call_arguments() -> dict[str, Any]:
    """The arguments of the method of the builder that the program called, by name, those that are None left out."""
    _, method = _frames()
    if method is None:
        return {}
    code, values = method.f_code, method.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)]
    return {name: values[name] for name in names if name != "self" and values.get(name) is not None}


def _frames() -> tuple[FrameType, FrameType | None]:
    """The caller's frame, and that of the outermost method of the builder below it (no operator, no comprehension)."""
    frame, method = sys._getframe(1), None
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_code.co_filename.startswith(_BUILDER) and frame.f_code.co_name[0].isalpha():
            method = frame
        frame = frame.f_back
    return frame, method


def shown(value: Any) -> str:
    """An argument in a message: operands by their shapes, computations by their names, the rest as Python shows it."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"array of {value.dtype}{list(shape)}" if isinstance(shape, tuple) else str(shape)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if callable(value) or hasattr(value, "entry_computation"):
        return str(getattr(value, "__name__", None) or getattr(value, "name", None) or type(value).__name__)
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
