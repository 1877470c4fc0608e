"""Starts the supervisor (supervisor.py). Imports little, so that the command line can do so first of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def spawn_supervisor() -> subprocess.Popen[bytes]:
    """Start a supervisor that waits for its first request. It ends with this process, or when its stdin is closed.

    Raises OSError if there can be no process.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal reaches the driver only
    )


__all__ = ["spawn_supervisor"]
