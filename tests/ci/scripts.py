"""The scripts of .ci/, which isn't a package."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".ci"


def script(name: str) -> Any:
    """The names of .ci/NAME.py, as a module's."""
    return SimpleNamespace(**runpy.run_path(str(FOLDER / f"{name}.py"), run_name=name))
