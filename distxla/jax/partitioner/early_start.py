"""The processes that a script's programs need, started with the first use of a device, which waits for the devices.

The compile process and the partitioner's take 0.3 s each to start. The first run of a script starts both. The second
one starts neither, since the first has filled the cache; a later run starts those that the run before it used. A script
with other arguments, or other content, is another one.
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
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.private.names import jaxlib_version
from distxla.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Needed:
    """Which processes the next run of a script will need."""

    compiles: bool
    partitions: bool


def start_early() -> None:
    """Begin to start what this script will need; does not block. At exit, what its next run will need is kept.

    Raises nothing of distxla's: what is wrong is told to the program that needs the process, or the cache.
    """
    key = script_key()
    if key is not None:
        at_exit(_keep_at_exit, os.getpid(), key, start_for(key))


def start_for(key: str) -> Needed | None:
    """Begin to start what the script with this key will need; what is known of that, for `keep_needed`."""
    kept: Needed | None = None
    with contextlib.suppress(DistxlaError):
        kept = CacheFolder(cache_folder(), cache_limit()).read_object(key, Needed)
        wanted = kept or Needed(compiles=True, partitions=True)
        if wanted.compiles:
            start_server()
        if wanted.partitions:
            SERVER.start()
    return kept


def at_exit(call: Callable[..., None], *arguments: object) -> None:
    """Have it called, once, when Python ends."""
    atexit.unregister(call)
    atexit.register(call, *arguments)


def keep_needed(key: str, before: Needed | None) -> None:
    """Keep what the next run of this script will need. before: what was expected of this one, None for its first."""
    needed = Needed(compiled_programs() > 0, SERVER.answered > 0)
    expected = Needed(compiles=False, partitions=False) if before is None else needed
    if expected != before:
        with contextlib.suppress(DistxlaError):
            CacheFolder(cache_folder(), cache_limit()).write_object(key, expected)


def _keep_at_exit(owner: int, key: str, before: Needed | None) -> None:
    if os.getpid() == owner:  # not a forked child
        keep_needed(key, before)


def script_key() -> str | None:
    """The name of this script's entry in the cache; None where there is none, as for a command line or a prompt."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None:
        return None
    try:
        state = os.stat(script)
    except OSError:
        return None
    described = "needed 2", os.path.abspath(script), state.st_size, state.st_mtime_ns, sys.argv[1:], jaxlib_version()
    return hashlib.sha256(repr(described).encode()).hexdigest()


__all__ = ["Needed", "keep_needed", "script_key", "start_early", "start_for"]
