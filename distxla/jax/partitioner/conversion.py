"""HLO text of a module in another form, by jaxlib in the partitioner's process; kept in the cache."""

from __future__ import annotations

import hashlib
from typing import Final

from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.jax.partitioner.partition_messages import Converted
from distxla.jax.partitioner.partition_server import SERVER
from distxla.jax.private.names import require_jaxlib

_FORMAT: Final = "converted 6"


def converted_module(module: bytes, platform: int | None = None) -> Converted:
    """A module as StableHLO text, MLIR bytecode, or an HloModuleProto; blocks.

    platform: what a module for several takes as its first parameter, which it has no longer then.
    Raises PartitioningError with XLA's message where it cannot read the module or dies of it; JaxError; TimeLimitError.
    """
    version = require_jaxlib("reading a module of another form than HLO text")
    key = hashlib.sha256(repr((_FORMAT, version, platform)).encode() + b"\0" + module).hexdigest()
    files = CacheFolder(cache_folder(), cache_limit())
    found = files.read_object(key, Converted)
    if found is None:
        found = SERVER.convert(module, platform)
        files.write_object(key, found)
    return found


__all__ = ["converted_module"]
