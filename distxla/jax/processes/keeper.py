"""What the owner of several machines' devices has on each machine but its own, before the devices serve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from distxla.errors import ClusterError
from distxla.jax.processes.owner_file import OwnerFile, machine_of_process
from distxla.machine.processes import is_readable
from distxla.machine.shortages import not_started

START_S: Final = 30.0
READY: Final = b"ready\n"
_MOST: Final = 1 << 16


class Keeper:
    """A Ray actor on a node. What it is told comes through Ray, as the secret of the devices' own connections does."""

    def __init__(self) -> None:
        self._file: OwnerFile | None = None

    def keep(self, address: tuple[str, int], secret: bytes) -> tuple[str, str]:
        """Hold a file that tells processes of this machine where the owner listens, until this actor ends: the machine,
        and the file's path."""
        self._file = OwnerFile(address, secret)
        return machine_of_process(), self._file.path

    def start(self, module: str, told: dict[str, Any]) -> None:
        """Start a Python module that outlives this actor, and everything of Ray's here; blocks until it says that it
        is ready. told: JSON for its stdin, before its end. ClusterError where it can't be started."""
        paths = [str(Path(__file__).resolve().parents[3]), *filter(None, sys.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        # its parent ends at once: Ray ends the children of its workers with them
        command = ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh", sys.executable, "-P", "-m", module]
        try:
            shell = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise not_started(f"{module} cannot be started", error) from error
        assert shell.stdin is not None
        assert shell.stdout is not None
        with shell:
            with suppress(BrokenPipeError), shell.stdin as stdin:
                stdin.write(json.dumps(told).encode())
            said = os.read(shell.stdout.fileno(), _MOST) if is_readable(shell.stdout.fileno(), START_S) else b""
        if said != READY:
            raise ClusterError(f"{module}: {said.decode(errors='replace').strip() or 'it has ended as it started'}")


__all__ = ["READY", "Keeper"]
