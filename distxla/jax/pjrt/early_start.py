"""The processes that a script's programs need, started together with its devices.

The compile process and the partitioner's take 0.3 s each to start. A script that has not run before needs both. What it
needed is then in the cache: its next runs get neither, or what the last one needed all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import sys
from collections.abc import Callable

from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.compiler.server_share import compiled_programs, start_server
from distxla.errors import DistxlaError
from distxla.jax.partition_server import SERVER
from distxla.jax.private_names import jaxlib_version
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Needed:
    """Which processes the next run of a script will need."""

    compiles: bool
    partitions: bool


def start_early() -> None:
    """Begin to start what this script will need; does not block. At exit, what its next run will need is kept.

    A process that cannot be started is an error of the program that needs it.
    """
    key = _key()
    if key is None:
        return
    kept = _files().read_object(key, Needed)
    wanted = kept or Needed(compiles=True, partitions=True)
    if wanted.compiles:
        _tried(start_server)
    if wanted.partitions:
        _tried(SERVER.start)
    atexit.unregister(_keep_at_exit)
    atexit.register(_keep_at_exit, os.getpid(), key, kept)


def keep_needed(key: str, before: Needed | None) -> None:
    """Keep what the next run of this script will need. before: what was expected of this one, None for its first."""
    needed = Needed(compiled_programs() > 0, SERVER.answered > 0)
    expected = Needed(compiles=False, partitions=False) if before is None else needed
    if expected != before:
        _files().write_object(key, expected)


def _keep_at_exit(owner: int, key: str, before: Needed | None) -> None:
    if os.getpid() == owner:  # not a forked child
        keep_needed(key, before)


def _key() -> str | None:
    """The name of the script's entry; None where there is none, as for a command line or a prompt."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None:
        return None
    try:
        state = os.stat(script)
    except OSError:
        return None
    described = "needed 1", os.path.abspath(script), state.st_size, state.st_mtime_ns, sys.argv[1:], jaxlib_version()
    return hashlib.sha256(repr(described).encode()).hexdigest()


def _files() -> CacheFolder:
    return CacheFolder(cache_folder(), cache_limit())


def _tried(start: Callable[[], None]) -> None:
    with contextlib.suppress(DistxlaError):
        start()


__all__ = ["Needed", "keep_needed", "start_early"]
