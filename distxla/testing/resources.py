"""The child processes, threads and open files of this process, as the kernel lists them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from distxla.machine.processes import command_line, open_descriptors, opened_by, process_ids, status_fields

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
    found = set()
    for process in process_ids():
        with suppress(OSError):  # it ended meanwhile
            fields = status_fields(process)
            if fields[1] == str(os.getpid()) and fields[0] not in "ZX" and not _is_own(process):
                found.add(process)
    return found


def _is_own(process: int) -> bool:
    command = command_line(process)
    return any(name in command for name in _OWN_PROCESSES)


def described(process: int) -> str:
    """`process 12 (sleep 100)`."""
    command = ""
    with suppress(OSError):
        command = command_line(process).replace(b"\0", b" ").decode(errors="replace").strip()
    return f"process {process} ({command[:80]})"


def open_files() -> set[str]:
    """`descriptor 12, /path/of/file` of files and memory files. Sockets and pipes are left out: Ray opens and closes
    those as it likes. So are the standard streams, which pytest captures."""
    found = set()
    for number in open_descriptors() - {0, 1, 2}:
        with suppress(OSError):
            target = opened_by(number)
            if target.startswith("/") and not target.startswith(_OF_CLUSTERS):
                found.add(f"descriptor {number}, {target}")
    return found


def running_threads() -> set[threading.Thread]:
    """Those that keep the process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}
