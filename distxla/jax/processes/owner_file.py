"""Where the owner listens, and its secret: in a memory file that only the user can open, whose path processes are told.

The path goes through JAX's key-value store, which anybody on the network may read; the secret never does. The file is
gone with the owner, however that ends. On other machines a process of the user's (keeper.py) has such a file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Final

from distxla.errors import ClusterError
from distxla.machine.memory_files import is_of_process, memory_file, path_of
from distxla.machine.processes import kernel_text, process_namespace
from distxla.wire.handshake import SECRET_BYTES

OWNER: Final = "DISTXLA_OWNER"  # environment: the path of the file
_MOST: Final = 4096  # bytes of the file


def boot_id() -> str:
    """Tells this machine, since it was started, from all others."""
    return kernel_text("sys/kernel/random/boot_id").strip()


def machine_of_process() -> str:
    """Tells the machine, or the container, whose processes this one can see, from all others."""
    return f"{boot_id()}/{process_namespace()}"


class OwnerFile:
    """The file, of this process. path: for `read_owner`."""

    def __init__(self, address: tuple[str, int], secret: bytes) -> None:
        """ClusterError where there can be none."""
        data = json.dumps({"address": list(address), "secret": secret.hex(), "boot_id": boot_id()}).encode()
        try:
            self._descriptor = memory_file("distxla-owner", sealable=True)
        except OSError as error:
            raise ClusterError(f"the owner of the devices can't tell where it listens: {error.strerror}") from error
        os.write(self._descriptor, data)
        self.path = path_of(self._descriptor)

    def close(self) -> None:
        """Nobody can read it any more. Twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_owner(path: str) -> tuple[tuple[str, int], bytes]:
    """(address, secret). ClusterError where there is none, where others may write or read it, or it is of another
    machine."""
    links = 0 if is_of_process(path) else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | links | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ClusterError(f"the owner of the devices can't be found: {path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ClusterError(f"{path}: expected a file of this user that nobody else may read or write")
        data = os.read(descriptor, _MOST)
    finally:
        os.close(descriptor)
    try:
        told = json.loads(data)
        host, port = told["address"]
        secret, machine = bytes.fromhex(told["secret"]), told["boot_id"]
        if not isinstance(host, str) or not isinstance(port, int) or len(secret) != SECRET_BYTES:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"{path}: expected an owner's address and secret") from error
    if machine != boot_id():
        raise _elsewhere(path)
    return (host, port), secret


def pack_paths(paths: Mapping[str, str]) -> bytes:
    """The path on each machine, for the key-value store. paths: by what `machine_of_process` says there."""
    return "\n".join(f"{machine} {path}" for machine, path in paths.items()).encode()


def unpack_path(told: bytes) -> str:
    """The path of `pack_paths` on this machine. ClusterError where there is none."""
    paths = dict(line.partition(" ")[::2] for line in told.decode(errors="replace").split("\n"))
    found = paths.get(machine_of_process())
    if found is None:
        raise _elsewhere(next(iter(paths.values()), "?"))
    return found


def _elsewhere(path: str) -> ClusterError:
    return ClusterError(
        f"the owner of the devices, {path}, is on another machine than process {os.getpid()}: for processes of several "
        "machines start Ray on each of them, and give all processes its address, DISTXLA_ADDRESS"
    )


__all__ = ["OWNER", "OwnerFile", "boot_id", "machine_of_process", "pack_paths", "read_owner", "unpack_path"]
