"""Modules that are imported at their first use.

with deferred("requests"):
    import ray        # has `import requests` at its top, and asks for an attribute of it on a cloud's machines only
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Within, `import` gives a stand-in for each of these modules that is not imported yet. The importer keeps the
    stand-in, which imports the module when an attribute is asked for. Importing a submodule does so, too."""
    stand_ins = {name: _stand_in(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            _remove(name, stand_in)


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)

    def attribute(wanted: str) -> Any:
        _remove(name, module)
        return getattr(importlib.import_module(name), wanted)

    module.__dict__["__getattr__"] = attribute
    return module


def _remove(name: str, stand_in: ModuleType) -> None:
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
