"""Checks of a machine before an embedded Ray starts, or another one is joined: without them servers hang for 30 s, end
the driver, or let it wait for a minute."""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from pathlib import Path

from distxla.errors import ClusterError
from distxla.machine.processes import has_process_files, kernel_text, open_descriptors
from distxla.runtime.ray.commands import LOOPBACK

# open files, as counted with 2, 8 and 24 devices: 59, 83, 147 of a server, 49, 67, 115 of the driver
_SERVER, _SERVER_A_DEVICE = 56, 4
_DRIVER, _DRIVER_A_DEVICE = 48, 3
_RAYLET = "/sockets/raylet"
LEAST_ROOM_BYTES = 1 << 20  # logs, and the port of gcs_server
LEAST_FILE_BYTES = 96 << 20  # the object store, a memory file; and logs


def require_startable(devices: int) -> None:
    """ClusterError if an embedded Ray with `devices` replicas cannot start.

    Raises the soft limit of this process's open files, which its servers inherit, if it is too low and the hard
    limit allows it."""
    _require_proc()
    _require_descriptors(devices)
    _require_file_size()
    _require_loopback()
    _require_room(tempfile.gettempdir())


def require_raylet(address: str) -> None:
    """ClusterError if no node of any Ray runs here: a driver joins by the one on its own machine."""
    if not raylets():
        raise ClusterError(
            f"this machine is no node of the Ray cluster at {address}, as the one of a driver must be: no raylet runs "
            f"here. `ray start --address={address}` makes it one; or run the command on a node, by `ray job submit`"
        )


def raylets(sockets: str | None = None, folder: Path = Path("/tmp/ray")) -> list[Path]:
    """The sockets of the nodes that run here. sockets: the kernel's list of those of this machine; None for today's.
    folder: Ray's, which may be shared with a container that sees no sockets but its own."""
    if sockets is None:
        try:
            sockets = kernel_text("net/unix")
        except OSError:  # a kernel that keeps no list
            sockets = ""
    named = [Path(line.split()[-1]) for line in sockets.splitlines() if line.endswith(_RAYLET)]
    return [path for path in (*named, *folder.glob(f"session_*{_RAYLET}")) if path.exists()]


def _require_proc() -> None:
    """Processes find each other's memory and ends there, Ray's and ours."""
    if not has_process_files():
        raise ClusterError("a cluster needs the file system /proc, which is not there (mount -t proc proc /proc)")


def _require_descriptors(devices: int) -> None:
    here = len(open_descriptors()) + _DRIVER + _DRIVER_A_DEVICE * devices
    needed = max(here, _SERVER + _SERVER_A_DEVICE * devices)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _allows(soft, needed):
        return
    if not _allows(hard, needed):
        raise ClusterError(
            f"the embedded Ray needs {needed} open files a process for {devices} device{'s' if devices > 1 else ''}; "
            f"the limit is {hard} (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _require_file_size() -> None:
    """A server that writes more is ended, without a word."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not _allows(soft, LEAST_FILE_BYTES):
        raise ClusterError(
            f"the embedded Ray has files of {LEAST_FILE_BYTES >> 20} MiB; the limit is {soft >> 10} KiB (ulimit -f)"
        )


def _allows(limit: int, count: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= count


def _require_loopback() -> None:
    try:
        with socket.create_server((LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        raise ClusterError(
            f"the embedded Ray needs the loopback interface, but {LOOPBACK} cannot be reached: "
            f"{error.strerror or error} (ip link set lo up)"
        ) from error


def _require_room(folder: str) -> None:
    """gcs_server exits without a message if it can't write its port."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return  # the folder is not used, or using it reports the error
    if found.f_blocks and found.f_bavail * found.f_frsize < LEAST_ROOM_BYTES:
        raise ClusterError(
            f"the embedded Ray writes to {folder}, where only {found.f_bavail * found.f_frsize >> 10} KiB are free; "
            "make room, or set TMPDIR"
        )


__all__ = ["require_startable"]
