"""What this process tells the owner of itself."""

from __future__ import annotations

import os
import platform
import socket
import sys

from distxla.jax.partitioner.early_start import script_key
from distxla.jax.private.backends import compiling_options
from distxla.jax.private.names import jaxlib_version
from distxla.jax.processes.owner_file import boot_id, machine_of_process
from distxla.jax.processes.spawn import OwnerSettings
from distxla.jax.processes.world import Introduction
from distxla.machine.packages import installed_version


def introduction(settings: OwnerSettings) -> Introduction:
    """Of this process, whose devices these settings are of."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return Introduction(
        boot_id(),
        socket.gethostname(),
        os.getpid(),
        settings.local,
        settings.address,
        settings.device_memory,
        settings.backend,
        settings.checks,
        installed_version("distxla") or "",
        installed_version("jax") or "",
        jaxlib_version() or "",
        platform.python_version(),
        os.environ.get("XLA_FLAGS", ""),
        compiling_options(),
        os.path.basename(script),
        tuple(sys.argv[1:]),
        script_key() or "",
        machine_of_process(),
    )


__all__ = ["introduction"]
