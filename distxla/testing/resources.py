"""What this process has open, as the kernel tells it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

# processes that live as long as this one, or as a cluster
_OWN_PROCESSES = (
    b"distxla.compiler.worker",
    b"distxla.jax.partitioner.partition_worker",
    b"distxla/runtime/ray/supervisor.py",
)
# those of Ray and of clusters: who left a cluster open is told that
_OF_CLUSTERS = ("/memfd:distxla-", "/tmp/distxla-", "/tmp/ray/", "/dev/", "/proc/", "/sys/")


def child_processes() -> set[int]:
    """The ids of the living processes that this one started itself, without those of distxla."""
    me, found = str(os.getpid()), set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):  # it ended meanwhile
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[1] == me and fields[0] not in "ZX" and not _is_own(entry):
                    found.add(int(entry))
    return found


def _is_own(process: str) -> bool:
    command = Path(f"/proc/{process}/cmdline").read_bytes()
    return any(name in command for name in _OWN_PROCESSES)


def described(process: int) -> str:
    """`process 12 (sleep 100)`."""
    command = ""
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return f"process {process} ({command[:80]})"


def open_files() -> set[str]:
    """`descriptor 12, /path/of/file` of files and memory files. Sockets and pipes are left out: Ray opens and closes
    those as it likes. So are the standard streams, which pytest captures."""
    found = set()
    for number in set(os.listdir("/proc/self/fd")) - {"0", "1", "2"}:
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("/") and not target.startswith(_OF_CLUSTERS):
                found.add(f"descriptor {number}, {target}")
    return found


def running_threads() -> set[threading.Thread]:
    """Those that keep the process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}
