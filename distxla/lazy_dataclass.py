"""Dataclasses whose functions are compiled when they are first used.

    from distxla.lazy_dataclass import dataclass

    @dataclass(frozen=True)
    class Size:
        rows: int
        columns: int = 1

The standard library compiles up to six functions for each class, which is half of the time that the imports of a
command take; of most classes a process never makes an instance. What the functions do is the standard library's, on
Python 3.13 that of 3.12: equality compares tuples of the fields. A dataclass that derives from one of these must be
declared by this decorator, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, field, fields, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        repr: bool = True,
        kw_only: bool = False,
        slots: bool = False,
    ) -> Any:
        """As dataclasses.dataclass, with these of its parameters."""

        def made(cls: type) -> type:
            return _made(cls, frozen=frozen, eq=eq, repr=repr, kw_only=kw_only, slots=slots)

        return made if cls is None else made(cls)


class _Factory:
    """Stands for the default of a parameter for which a function makes a value."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _Init:
    """`__init__` of a dataclass until it is first looked up."""

    def __init__(self, owner: type, frozen: bool, slots: bool) -> None:
        self.owner, self.frozen, self.slots = owner, frozen, slots

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        compiled = _compiled_init(self.owner, self.frozen, self.slots)
        if vars(self.owner).get("__init__") is self:
            self.owner.__init__ = compiled
        return compiled if instance is None else compiled.__get__(instance)


def _made(cls: type, *, frozen: bool, eq: bool, repr: bool, kw_only: bool, slots: bool) -> Any:
    own = dict(vars(cls))
    if frozen and ("__setattr__" in own or "__delattr__" in own):
        raise TypeError(f"{cls.__name__}: a frozen class cannot have __setattr__ or __delattr__ of its own")
    if any(vars(base).get("_dataclass_is_frozen", frozen) is not frozen for base in cls.__mro__[1:]):
        raise TypeError(f"{cls.__name__}: frozen and other dataclasses cannot derive from each other")
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the signature is looked for, of which it would be made
    found: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
    found._dataclass_is_frozen = frozen
    _require_order(found)
    if "__init__" not in own:
        found.__init__ = _Init(found, frozen, slots)
    if repr and "__repr__" not in own:
        found.__repr__ = _repr
    if eq:
        _compare(found, own, frozen)
    if frozen:
        _freeze(found)
        if slots and "__getstate__" not in own:  # the slots of a frozen class cannot be set as pickle does
            found.__getstate__, found.__setstate__ = _getstate, _setstate
    return found


def _require_order(cls: Any) -> None:
    """TypeError for a field without a default behind one that has some, and for an InitVar."""
    optional = ""
    for item in fields(cls):
        if item.init and not item.kw_only:
            if item.default is not MISSING or item.default_factory is not MISSING:
                optional = item.name
            elif optional:
                raise TypeError(
                    f"{cls.__name__}: field {item.name!r} without a default follows {optional!r}, which has one"
                )
    if len(fields(cls)) < sum("ClassVar" not in str(item.type) for item in cls.__dataclass_fields__.values()):
        raise TypeError(f"{cls.__name__}: an InitVar is no field")


def _compiled_init(cls: Any, frozen: bool, slots: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_dataclass_factory": _FACTORY, "_dataclass_set": object.__setattr__}
    given: dict[bool, list[str]] = {False: [], True: []}  # the parameters, by position and by keyword only
    body = []
    for item in fields(cls):
        name, default = item.name, f"_default_{item.name}"
        value = name if item.init else default
        if item.default_factory is not MISSING:
            known[default] = item.default_factory
            value = f"{default}() if {name} is _dataclass_factory else {name}" if item.init else f"{default}()"
        elif item.default is not MISSING:
            known[default] = item.default
        if item.init:
            is_needed = default not in known
            stands = "_dataclass_factory" if item.default_factory is not MISSING else default
            given[bool(item.kw_only)].append(name if is_needed else f"{name}={stands}")
        elif item.default_factory is MISSING and not (slots and item.default is not MISSING):
            continue  # the class has the default
        body.append(f"_dataclass_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *given[False], *(["*"] if given[True] else []), *given[True]])
    text = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    made: dict[str, Any] = {}
    exec(compile(text, f"<{cls.__qualname__}>", "exec"), known, made)
    init: Callable[..., None] = made["__init__"]
    init.__annotations__ = {item.name: item.type for item in fields(cls) if item.init} | {"return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({values})"


def _compare(cls: Any, own: dict[str, Any], frozen: bool) -> None:
    """Equality of the fields and, for a frozen class, a hash of them; but for functions that the class has itself."""
    values = _values([item.name for item in fields(cls) if item.compare])
    hashed = _values([item.name for item in fields(cls) if (item.compare if item.hash is None else item.hash)])

    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return values(self) == values(other) if self.__class__ is other.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if not has_hash:
        cls.__hash__ = __hash__ if frozen else None


def _values(names: Sequence[str]) -> Callable[[Any], Any]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda one: (get(one),)


def _freeze(cls: Any) -> None:
    """Fields get their values from `__init__` and from pickle alone."""
    names = frozenset(item.name for item in fields(cls))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


__all__ = ["dataclass", "field", "fields", "replace"]
