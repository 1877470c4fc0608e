"""The names that `dir` and completion show of the classes that users meet."""

from __future__ import annotations

from typing import ClassVar


class _ListsPublicNames(type):
    """`dir` of the class lists none of `_INTERNAL` either; `help` and completion go by it."""

    _INTERNAL: frozenset[str]

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if name not in cls._INTERNAL]


class PublicNames(metaclass=_ListsPublicNames):
    """`dir` of an instance lists what callers may use: no underscores, and none of `_INTERNAL`, the names that other
    parts of the project use and callers don't."""

    __slots__ = ()
    _INTERNAL: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if not name.startswith("_") and name not in self._INTERNAL)
