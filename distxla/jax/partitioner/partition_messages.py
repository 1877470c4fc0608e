"""The messages between this process and the partitioner's (partition_worker.py), as pickles."""

from __future__ import annotations

import re
from typing import Final

from distxla.jax.private.names import HloDescription, PartitionerOptions
from distxla.lazy_dataclass import dataclass

# `W1129 15:53:28.622408 14762 spmd_partitioner.cc:666] [SPMD] Involuntary full rematerialization. ...`
_WARNING: Final = re.compile(
    r"^[WE]\d{4} [\d:.]+ +\d+ \w*(?:spmd|shard|partition)\w*\.cc:\d+\] (?:\[\w+\] )?(.*)$", re.MULTILINE
)
_OF_ITSELF: Final = "is going to be deprecated"  # GSPMD: nothing that the program's author could mend


@dataclass(frozen=True)
class Request:
    """module: StableHLO text, MLIR bytecode, HLO text or an HloModuleProto.  options: None if it is only to become HLO
    text.  folder: does not exist yet; for XLA's dumps.  platform: as of `conversion.converted_module`."""

    module: bytes
    options: PartitionerOptions | None
    folder: str
    platform: int | None = None


@dataclass(frozen=True)
class Answer:
    """The partitioned module, its description, that of the global one, and what the partitioner warned of."""

    proto: bytes
    partitioned: HloDescription
    parameter_shapes: tuple[str, ...]
    output_shapes: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Converted:
    """text: HLO text, large constants as {...}.  proto: the HloModuleProto, with all constants.  partitions, replicas:
    as the module states them, None where it doesn't.  module: StableHLO for the platform that was asked for; None where
    none was."""

    text: str
    proto: bytes
    partitions: int | None
    replicas: int | None
    module: bytes | None = None


@dataclass(frozen=True)
class Death:
    """A fork that ended without an answer. status: as subprocess has it.  messages: what XLA printed, its beginning."""

    status: int
    messages: str


def warnings_of(printed: str) -> tuple[str, ...]:
    """What the partitioner warns of in the program, among what XLA printed, each once."""
    found = (text.strip() for text in _WARNING.findall(printed))
    return tuple(dict.fromkeys(text for text in found if _OF_ITSELF not in text))
