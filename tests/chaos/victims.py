"""Processes of a driver by role, and its leftovers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MARK = "DISTXLA_CHAOS"
_ROLES = {  # words of the command line, by role
    "raylet": ("raylet/raylet",),
    "gcs": ("gcs_server",),
    "supervisor": ("supervisor.py",),
    "zygote": ("zygote",),
    "compiler": ("distxla.compiler.worker",),
    "agent": ("ray::Agent",),
    "replica": ("ray::Replica",),
    "owner": ("distxla.jax.processes.owner_process",),
}


def processes(mark: str) -> dict[int, str]:
    """Command lines of all processes that have this mark in their environment, but for zombies."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0") and state(int(entry.name)) not in "ZX":
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = command.strip()
    return found


def of_role(role: str, marked: dict[int, str]) -> list[int]:
    """Process ids of that role, in order."""
    return sorted(pid for pid, command in marked.items() if any(word in command for word in _ROLES[role]))


def state(pid: int) -> str:
    """`R`, `S`, `T` .. as /proc has it; X for none."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def shared_memory() -> set[str]:
    """Names in /dev/shm, but for semaphores of other people's multiprocessing."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}
