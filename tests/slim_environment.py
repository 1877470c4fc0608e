"""An environment of what `pip install distxla` installs without extras, as links to the packages of this one."""

from __future__ import annotations

import os
import subprocess
import tomllib
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# tells of each process that one of this environment starts
TELLS = """import sys
def tell(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"):
        print("started", arguments, file=sys.stderr)
sys.addaudithook(tell)
"""


def needed(requirements: Sequence[str]) -> Iterator[str]:
    """Names of the distributions that these requirements bring, their own ones included."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name
            yield from needed(distribution(requirement.name).requires or ())


class SlimEnvironment:
    """folder: is made. Its processes print a line that begins with `started` for each that they start."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self._bin = folder / "bin"
        packages = next((folder / "lib").glob("python3*")) / "site-packages"
        for name in set(needed(PROJECT["dependencies"])):
            found = distribution(name)
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
        (packages / "distxla").symlink_to(ROOT / "distxla")
        (packages / "sitecustomize.py").write_text(TELLS)

    def run(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Its Python with these arguments, and these variables beside this process's."""
        base = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(self._bin / "python"), *map(str, arguments)]
        return subprocess.run(
            command, env={**base, **environment}, capture_output=True, text=True, timeout=120, check=False
        )


__all__ = ["PROJECT", "ROOT", "SlimEnvironment", "needed"]
