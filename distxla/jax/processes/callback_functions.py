"""The user's functions behind callbacks, as other processes are told of them: a name, a line, and a digest of the code.

JAX wraps each function several times: in closures, partial objects and objects of its own. The first function on the
way that is not JAX's is the user's.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

_WRAPPERS: Final = ("jax", "jaxlib", "distxla")  # packages whose functions are looked into
_MOST_LOOKED_AT: Final = 1000  # objects

CallbackFunction = tuple[int, str, str]
"""The number of a module's function, `name (file.py:12)`, and the digest of its code."""


def described(calls: Mapping[int, Callable[..., Any]]) -> tuple[CallbackFunction, ...]:
    """The functions of a module's callbacks, by number.

    Equal code in the same place has the same digest, whatever it closes over or is bound to: that may be different in
    each process, as data are.
    """
    return tuple((number, *_described(_users(function))) for number, function in calls.items())


def _users(function: Any) -> Any:
    """The function that the user gave to JAX; of one of JAX's the innermost."""
    waiting, seen, last = deque([function]), {id(function)}, function
    while waiting and len(seen) < _MOST_LOOKED_AT:
        found = waiting.popleft()
        if callable(found) and not isinstance(found, partial):
            last = found
            if not _is_wrapper(found):
                return found
        for inner in _inside(found):
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)
    return last


def _is_wrapper(function: Any) -> bool:
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        module = type(function).__module__
    return module.partition(".")[0] in _WRAPPERS


def _inside(found: Any) -> Iterator[Any]:
    """What may be, or have, the function that a wrapper calls."""
    if isinstance(found, partial):
        yield from (found.func, *found.args, *found.keywords.values())
    elif isinstance(found, MethodType):
        yield from (found.__func__, found.__self__)
    elif isinstance(found, FunctionType):
        for cell in found.__closure__ or ():
            try:
                inner = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            if callable(inner):
                yield inner
    elif not isinstance(found, type):
        names = (*getattr(type(found), "__slots__", ()), *getattr(found, "__dict__", ()))
        values = (getattr(found, name, None) for name in names if not name.startswith("__"))
        yield from filter(callable, values)
    if (wrapped := getattr(found, "__wrapped__", None)) is not None:
        yield wrapped


def _described(function: Any) -> tuple[str, str]:
    """`name (file.py:12)`, and the digest."""
    layers = list(_layers(function))
    plain = layers[-1]
    name = str(getattr(plain, "__qualname__", None) or getattr(plain, "__name__", None) or type(plain).__qualname__)
    digest = hashlib.sha256(f"{getattr(plain, '__module__', '')}.{name}".encode())
    codes = [code for one in layers if (code := _code(one)) is not None]
    for code in codes:
        _add(digest, code)
    if not codes:
        return name, digest.hexdigest()
    return f"{name} ({os.path.basename(codes[-1].co_filename)}:{codes[-1].co_firstlineno})", digest.hexdigest()


def _layers(function: Any) -> Iterator[Any]:
    """The function, and those that decorators, methods and partial objects have around, to the innermost."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        yield function
        for name in ("__wrapped__", "func", "__func__"):
            inner = getattr(function, name, None)
            if callable(inner) and (name != "func" or isinstance(function, partial)):
                function = inner
                break


def _code(function: Any) -> CodeType | None:
    """Of a function, or of an object that can be called; None where it is not Python's."""
    if isinstance(function, FunctionType):
        return function.__code__
    if isinstance(function, partial | MethodType):
        return None  # that of the next layer
    called = inspect.getattr_static(type(function), "__call__", None)
    return called.__code__ if isinstance(called, FunctionType) else None


def _add(digest: Any, code: CodeType) -> None:
    """What the code does, and its line, without its folder."""
    where = os.path.basename(code.co_filename), code.co_firstlineno
    digest.update(repr((where, code.co_name, code.co_code, code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(digest, constant)
        else:
            digest.update(_told(constant).encode())


def _told(constant: object) -> str:
    """Equal for equal constants: the order of a set differs between processes."""
    if isinstance(constant, frozenset):
        return f"{{{sorted(map(_told, constant))}}}"
    if isinstance(constant, tuple):
        return f"({[_told(each) for each in constant]})"
    return f"{type(constant).__name__} {constant!r}"


__all__ = ["CallbackFunction", "described"]
