"""How the arguments and results of a per-device program are cut, as far as something says so: which devices have the
same array."""

from __future__ import annotations

from collections.abc import Iterable

from distxla.compiler.passes.manual_partitions import PerDevice, shards_of
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.sharding import Sharding
from distxla.ir.shards import Shards
from distxla.lazy_dataclass import dataclass
from distxla.text.sdy import UnreadableSharding


@dataclass(frozen=True)
class Placements:
    """By leaf; None where nothing says how it is cut. Tokens have none."""

    parameters: tuple[Shards | None, ...]
    results: tuple[Shards | None, ...]


def placements_of(module: Module, partitions: int, whole: PerDevice | None = None) -> Placements:
    """From the global module where it was one, else from the annotations of parameters and result.

    module: the program of each device.  whole: what was made of a global module.
    """
    if whole is not None:
        return Placements(tuple(a.shards for a in whole.parameters), tuple(a.shards for a in whole.results))
    entry = module.entry_computation
    parameters = [shards for p in entry.parameters for _, shards, _ in stated_shards(p, partitions)]
    results = [shards for _, shards, _ in stated_shards(entry.root_instruction, partitions)]
    return Placements(tuple(parameters), tuple(results))


def stated_shards(instruction: Instruction, partitions: int) -> list[tuple[Shape, Shards | None, str]]:
    """Shape, shards and sharding of each leaf; no shards where it has no sharding that can be read."""
    leaves, sharding = list(instruction.shape.leaves()), instruction.sharding
    parts: list[Sharding | None] = [sharding] * len(leaves)
    if sharding is not None and sharding.kind == "tuple" and len(sharding.elements) == len(leaves):
        parts = [*sharding.elements]
    return [(leaf, *_read(part, leaf.rank, partitions)) for leaf, part in zip(leaves, parts, strict=True)]


def _read(sharding: Sharding | None, rank: int, partitions: int) -> tuple[Shards | None, str]:
    if sharding is None:
        return None, ""
    try:
        return shards_of(sharding, rank, partitions), sharding.text
    except UnreadableSharding:
        return None, sharding.text


def same_devices(shards: Shards, replicas: int) -> Iterable[tuple[int, ...]]:
    """The devices of a program, by flattened id, that have the same part; each replica's are its own. Groups of one
    are left out."""
    partitions = len(shards.places)
    for replica in range(replicas):
        groups: dict[tuple[int, ...], list[int]] = {}
        for partition, place in enumerate(shards.places):
            groups.setdefault(place, []).append(replica * partitions + partition)
        yield from (tuple(group) for group in groups.values() if len(group) > 1)
