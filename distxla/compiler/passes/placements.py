"""How the arguments and results of a per-device program are cut, as far as something says so: which devices have the
same array."""

from __future__ import annotations

from collections.abc import Iterable

from distxla.compiler.passes.manual_partitions import PerDevice, shards_of
from distxla.errors import HloSyntaxError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.sharding import DECLARED_SHARDING, Sharding
from distxla.ir.shards import Shards
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.copy import Copy
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.text.lexer import Lexer
from distxla.text.sdy import UnreadableSharding
from distxla.text.shardings import read_sharding


@dataclass(frozen=True)
class Placements:
    """By leaf; None where nothing says how it is cut. Tokens have none."""

    parameters: tuple[Shards | None, ...]
    results: tuple[Shards | None, ...]


DeclaredValues = dict[tuple[str, str], Shards]
"""By names of computation and instruction."""


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


def declared_values(module: Module, partitions: int, results: Iterable[Shards | None] = ()) -> DeclaredValues:
    """How the values inside of a per-device program are cut by what the global module said of them.

    results: of the result's leaves: values that leave the program as a result with the same shards are left out.
    """
    found: DeclaredValues = {}
    for computation in module.reached():
        for instruction in computation:
            text = instruction.frontend_attribute(DECLARED_SHARDING) if instruction.frontend_attributes else None
            if text is None or not instruction.shape.is_array or instruction.shape.is_dynamic:
                continue
            try:
                shards = shards_of(read_sharding(Lexer(text)), instruction.shape.rank, partitions)
            except (UnreadableSharding, HloSyntaxError) as error:
                where = module.locate(instruction, "frontend_attributes")
                raise VerificationError(f"{instruction.name}: {DECLARED_SHARDING}: {error}", where) from error
            if any(same_devices(shards, 1)):
                found[computation.name, instruction.name] = shards
    entry = module.entry_computation
    root = entry.root_instruction
    leaves = root.operands if isinstance(root.op, Tuple) else (root.name,)
    for leaf, wanted in zip(leaves, results):
        name: str | None = leaf
        while wanted is not None and name is not None:
            if found.get((entry.name, name)) == wanted:
                del found[entry.name, name]
            name = _same_value(entry, entry[name])
    return found


def without_declared_values(module: Module) -> Module:
    """The module without statements about values inside."""
    return module.with_computations(
        [
            replace(computation, instructions=tuple(map(_undeclared, computation.instructions)))
            if any(i.frontend_attributes for i in computation)
            else computation
            for computation in module.computations
        ]
    )


def _undeclared(i: Instruction) -> Instruction:
    kept = tuple(pair for pair in i.frontend_attributes if pair[0] != DECLARED_SHARDING)
    return i if len(kept) == len(i.frontend_attributes) else i.replace(frontend_attributes=kept)


def _same_value(entry: Computation, i: Instruction) -> str | None:
    """The instruction whose value this one passes on."""
    if isinstance(i.op, Copy):
        return i.operands[0]
    if isinstance(i.op, GetTupleElement) and isinstance(entry[i.operands[0]].op, Tuple):
        return entry[i.operands[0]].operands[i.op.index]
    return None
