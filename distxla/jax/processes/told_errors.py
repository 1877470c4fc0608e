"""Errors as JSON, between a JAX process and the owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distxla.errors import ClusterError, DistxlaError, raised


def pack_error(error: BaseException, processes: tuple[int, ...] = ()) -> dict[str, Any]:
    """JSON of an error. processes: that it is about, where it is about some."""
    diagnosis = getattr(error, "diagnosis", None)
    if isinstance(error, DistxlaError):
        code, message = error.code, error.message
        if error.location is not None:
            message = "\n".join([f"{error.location}: {message}", *error.location.shown()])
    else:
        code, message = ClusterError.code, raised(error)
    return {
        "code": code,
        "message": message,
        "notes": [str(note) for note in getattr(error, "__notes__", ())],
        "text": "" if diagnosis is None else diagnosis.text(),
        "processes": list(processes),
    }


def unpack_error(found: Any) -> DistxlaError:
    """The error of this JSON, of the class with its code; the diagnosis's text is its last note."""
    if not isinstance(found, dict):
        return ClusterError(f"an error of another process: {str(found)[:200]}")
    code, text = str(found.get("code", "")), str(found.get("text") or "")
    error = _class_of(code)(str(found.get("message", "")))
    notes = found.get("notes")
    for note in [*(notes if isinstance(notes, list) else ()), *([text] if text else ())]:
        error.add_note(str(note))
    return error


def _class_of(code: str) -> type[DistxlaError]:
    return next((one for one in _classes(DistxlaError) if one.code == code), ClusterError)


def _classes(base: type[DistxlaError]) -> Iterator[type[DistxlaError]]:
    for one in base.__subclasses__():
        yield one
        yield from _classes(one)


__all__ = ["pack_error", "unpack_error"]
