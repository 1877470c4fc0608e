"""What the extras of distxla install, as `pip install 'distxla[run]'`, and which of it is missing.

Without any, pip installs what check, differ, the reference and the builder need. Imports little, also no errors: the
command line asks before it starts its first process.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Final

# names of distributions, as pyproject.toml has them
COMPILE: Final = ("llvmlite",)
RUN: Final = ("ray", *COMPILE, "scipy-openblas32", "cryptography")
SYSTEM: Final = "linux"


def is_there(module: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a finder that hides it
        return False
    except ValueError:  # it is in sys.modules without a specification
        return True


def unmet(what: str, packages: Sequence[str] = RUN, extra: str = "run") -> str | None:
    """Why this part can't work here, and what to install; None where it can.

    what: as in "running on a cluster".  packages: that it needs: all of them, or a part, of what the extra installs.
    """
    if sys.platform != SYSTEM:
        return f"{what} needs Linux, and this is {sys.platform}"
    missing = [package for package in packages if not is_there(package.replace("-", "_"))]
    if not missing:
        return None
    *others, last = missing
    names = f"{', '.join(others)} and {last}" if others else last
    return f"{what} needs {names}, which {'are' if others else 'is'} not installed: pip install 'distxla[{extra}]'"


__all__ = ["COMPILE", "RUN", "is_there", "unmet"]
