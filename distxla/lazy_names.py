"""Names of a package that are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: dict[str, Any], places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    package: its `globals()`.  places: of each name the module that has it, or "module:name there".
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        module, _, attribute = places[name].partition(":")
        value = package[name] = getattr(importlib.import_module(module), attribute or name)
        return value

    return get, lambda: sorted(package["__all__"])
