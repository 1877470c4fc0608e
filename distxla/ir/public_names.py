"""What `dir` and completion show of the classes that users meet."""

from __future__ import annotations

from typing import ClassVar


class PublicNames:
    """`dir` of an instance lists what callers may use: no underscores, and none of `_INTERNAL`, the names that other
    parts of the project use and callers don't."""

    __slots__ = ()
    _INTERNAL: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if not name.startswith("_") and name not in self._INTERNAL)


__all__ = ["PublicNames"]
