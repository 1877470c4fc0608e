"""Starts the supervisor (supervisor.py). Imports little, so that the command line can do so first of all."""

from __future__ import annotations

import os
import subprocess
import sys


def spawn_supervisor() -> subprocess.Popen[bytes]:
    """Start a supervisor that waits for its first request. It ends with this process, or when its stdin is closed.

    Raises OSError if there can be no process.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "supervisor.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in a terminal reaches the driver only
    )
