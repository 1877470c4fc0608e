"""Files of NVIDIA's Python packages."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path


def packaged(places: Mapping[str, str]) -> str | None:
    """The path of the first file that is installed; places: where it is in a package, by the package's name."""
    for package, place in places.items():
        try:
            found = Path(str(importlib.metadata.distribution(package).locate_file(place)))
        except importlib.metadata.PackageNotFoundError:
            continue
        if found.exists():
            return str(found)
    return None
