"""`prove`: is a sharded program, for all inputs, what the unsharded program is? `deduce`: and what are its values?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distxla.compiler.passes.manual_partitions import shards_of
from distxla.errors import ArgumentError
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.nested_values import nested
from distxla.ir.shape import Shape
from distxla.ir.sharding import Placement
from distxla.ir.shards import GlobalArray, Shards
from distxla.lazy_dataclass import dataclass, replace
from distxla.proofs.comparison import Comparison
from distxla.proofs.counterexample import is_different
from distxla.proofs.deduction import Deduction
from distxla.proofs.loops import FollowingLoops, ReferenceLoops
from distxla.proofs.relations.lines import Pool
from distxla.proofs.relations.relation import Relation, Value
from distxla.proofs.relations.space import Space
from distxla.proofs.relations.terms import Terms
from distxla.proofs.verdict import Outcome, Verdict
from distxla.rewrites.executed_form import executed_form
from distxla.text.sdy import UnreadableSharding


@dataclass(frozen=True)
class Sharded:
    """A program of all devices of the counts, each of which runs `module`.

    parameters, results: how leaves are cut, where the program was made of a global module; else None, and the
    parameters' own annotations count.
    """

    module: Module
    counts: Counts
    parameters: Sequence[GlobalArray] | None = None
    results: Sequence[GlobalArray] | None = None


@dataclass(frozen=True)
class Deduced:
    """What both programs' values are.

    verdict: without an example where a difference needs one (Verdict.is_assumed).  own, whole: of the sharded and of
    the unsharded program.  wholes: shapes of the unsharded parameters' leaves.  places, shards: how parameters' and
    results' leaves are cut; None of parameters that each device has for itself, and where nothing says it of results.
    """

    verdict: Verdict
    own: Deduction
    whole: Deduction
    wholes: Sequence[Shape]
    places: Sequence[Shards | None]
    shards: Sequence[Shards | None]


def prove(sharded: Sharded, unsharded: Module, *, is_alone: bool = False) -> Verdict:
    """The verdict of `deduce`; blocks. Runs both programs in the reference where a difference needs an example
    (counterexample.py), for some seconds at most. Raises ArgumentError as `deduce` does."""
    found = deduce(sharded, unsharded, is_alone=is_alone)
    verdict = found.verdict
    if not verdict.is_assumed or verdict.result is None:
        return verdict
    cuts = [at for at in found.places if at is not None]
    k = verdict.result
    if is_different(sharded.module, sharded.counts, unsharded, found.wholes, cuts, k, found.shards[k]):
        return verdict
    return replace(verdict, outcome=Outcome.UNDECIDED)


def deduce(sharded: Sharded, unsharded: Module, *, is_alone: bool = False) -> Deduced:
    """Infers what each value of the sharded program is of the unsharded one; runs nothing.

    unsharded: the module of one device, which computes with whole arrays; is_alone: of as many devices as the sharded
    one instead: then both are compared as the program of any one device, whose collectives do the same. Both are
    verified modules.
    Raises ArgumentError where parameters or results don't fit each other, or nothing says how a parameter is cut.
    """
    pool, terms = Pool(), Terms()
    reference = ReferenceLoops()
    counts = sharded.counts
    of_whole = Space(pool, terms, counts if is_alone else Counts(1, 1), alone=is_alone)
    theirs = Deduction(of_whole, executed_form(unsharded), reference)
    space = Space(pool, terms, counts, alone=is_alone)
    own = Deduction(space, executed_form(sharded.module), FollowingLoops(reference))
    entry, whole_entry = own.module.entry_computation, theirs.module.entry_computation
    leaves, wholes = _leaves(entry.parameters), [shape for _, shape in _leaves(whole_entry.parameters)]
    _require_fit("parameter", [s for _, s in leaves], wholes)
    inputs = [theirs.space.symbol(("parameter", k), shape) for k, shape in enumerate(wholes)]
    expected = theirs.run(whole_entry, _arguments(whole_entry.parameters, inputs))
    places = [None if is_alone else _shards(sharded, k, i, s, wholes[k]) for k, (i, s) in enumerate(leaves)]
    cut = [value if at is None else _cut(own, value, at) for value, at in zip(inputs, places, strict=True)]
    found = own.run(entry, _arguments(entry.parameters, cut))
    results = list(entry.root_instruction.shape.leaves())
    _require_fit("result", results, list(whole_entry.root_instruction.shape.leaves()))
    shards = [
        Shards.whole(s.rank if s.is_array else 0, 1)
        if is_alone
        else None
        if sharded.results is None
        else _on_all(sharded, sharded.results[k].shards)
        for k, s in enumerate(results)
    ]
    return Deduced(Comparison(own, theirs, shards).run(found, expected), own, theirs, wholes, places, shards)


def _leaves(parameters: Sequence[Instruction]) -> list[tuple[Instruction, Shape]]:
    return [(p, leaf) for p in parameters for leaf in p.shape.leaves()]


def _arguments(parameters: Sequence[Instruction], values: Sequence[Relation]) -> list[Value]:
    found: Iterator[Value] = iter(values)
    return [nested(p.shape, found) for p in parameters]


def _require_fit(what: str, own: Sequence[Shape], whole: Sequence[Shape]) -> None:
    if len(own) != len(whole):
        raise ArgumentError(f"the sharded program has {len(own)} {what}s, the unsharded one {len(whole)}")
    for k, (a, b) in enumerate(zip(own, whole, strict=True)):
        if not a.is_array and not b.is_array:
            continue
        if not a.is_array or not b.is_array:
            raise ArgumentError(f"{what} {k} of the sharded program is {a}, that of the unsharded one {b}")
        fits = a.dtype is b.dtype and a.rank == b.rank and all(n <= m for n, m in zip(a.dims, b.dims))
        if not fits:
            raise ArgumentError(f"{what} {k} of the sharded program is {a}, which is no part of the unsharded {b}")


def _shards(sharded: Sharded, k: int, parameter: Instruction, shape: Shape, whole: Shape) -> Shards:
    if sharded.parameters is not None:
        found = _on_all(sharded, sharded.parameters[k].shards)
    else:
        found = _annotated(sharded, parameter, shape, whole)
    if found.shard_dims(whole.dims) != shape.dims or any(n % t for n, t in zip(whole.dims, found.tiles)):
        tiles = ", ".join(map(str, found.tiles))
        where = sharded.module.locate(parameter, "sharding")
        raise ArgumentError(f"parameter {k} is {shape}: not a part of {whole} cut into ({tiles})", where)
    return found


def _on_all(sharded: Sharded, shards: Shards) -> Shards:
    """Of all devices, where every replica has the same array."""
    return replace(shards, places=shards.places * sharded.counts.replicas)


def _annotated(sharded: Sharded, parameter: Instruction, shape: Shape, whole: Shape) -> Shards:
    """By the annotation that XLA's partitioner leaves on parameters; one without is whole on every device."""
    given = parameter.sharding
    if given is not None and given.kind != "tuple" and given.placement is not Placement.OPEN:
        try:
            return shards_of(given, shape.rank, sharded.counts.devices)
        except UnreadableSharding as error:
            raise ArgumentError(str(error), sharded.module.locate(parameter, "sharding")) from error
    if shape.dims != whole.dims:
        text = f"{parameter.name} is {shape} of {whole}, and has no sharding that says how it is cut"
        raise ArgumentError(text, sharded.module.locate(parameter, "opcode"))
    return Shards.whole(shape.rank, sharded.counts.devices)


def _cut(deduction: Deduction, whole: Relation, shards: Shards) -> Relation:
    space = deduction.space
    dims = shards.shard_dims(whole.dims)
    axes = []
    for d, (n, size) in enumerate(zip(dims, whole.dims, strict=True)):
        rows = np.array([[place[d] * n] for place in shards.places]) + np.arange(n)
        lines = space.lines(rows)
        assert isinstance(deduction.loops, FollowingLoops)
        deduction.loops.note(lines, size)
        axes.append(((d if size != 1 else -1, lines),))
    return Relation(whole.term, tuple(axes), dims)
