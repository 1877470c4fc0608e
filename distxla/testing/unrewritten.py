"""Keeps pytest from rewriting the assertions of distxla's own modules.

pytest rewrites every package of a distribution that has a plugin: all modules of distxla would be parsed and compiled
once more, for nothing. This finder comes before pytest's, and loads them as Python does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class Unrewritten:
    """A finder of distxla's modules on the path."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for any other module, and where the path has none: then the next finder is asked."""
        return PathFinder.find_spec(name, path, target) if name.startswith("distxla.") else None


def install() -> None:
    """Put the finder first, unless there is one."""
    if not any(isinstance(finder, Unrewritten) for finder in sys.meta_path):
        sys.meta_path.insert(0, Unrewritten())
