"""Versions of installed packages, read from the names of their folders.

`importlib.metadata` reads a package's whole description with a parser of mail: 0.02 s of every start.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

# NAME-VERSION.dist-info, which the format of wheels prescribes
_FOLDER = re.compile(r"([^-]+)-([^-]+)\.dist-info", re.IGNORECASE)


def installed_version(name: str) -> str | None:
    """The version of the distribution `name`, such as `ray`; None if it is not installed."""
    wanted = _normalized(name)
    for folder in sys.path:
        with suppress(OSError):
            found = {
                match[2]
                for entry in os.listdir(folder or os.curdir)
                if (match := _FOLDER.fullmatch(entry)) is not None and _normalized(match[1]) == wanted
            }
            if len(found) == 1:
                return found.pop()
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)  # of a package that is installed in another way
    except PackageNotFoundError:
        return None


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
