"""Whether the results of both programs are the same, and if not, at which instruction they become different."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.nested_values import flat_leaves
from distxla.ir.op import Lowering
from distxla.ir.shards import Shards
from distxla.lazy_dataclass import replace
from distxla.ops.copy import Copy
from distxla.proofs.coordinates import Coordinates, coordinates, lies_at
from distxla.proofs.deduction import Deduction
from distxla.proofs.relations.lines import Array
from distxla.proofs.relations.relation import Relation, Unknown, Value
from distxla.proofs.relations.terms import reached
from distxla.proofs.verdict import Outcome, Verdict


class Comparison:
    """shards: of each result of the sharded program how it is cut, None where nothing says it: then any way in which
    the devices have equal blocks will do."""

    def __init__(self, sharded: Deduction, unsharded: Deduction, shards: list[Shards | None]) -> None:
        self.sharded, self.unsharded, self.shards = sharded, unsharded, shards

    def run(self, own: Value, whole: Value) -> Verdict:
        """The verdict on all results; a difference goes before what isn't decided."""
        pairs = list(zip(flat_leaves(own), flat_leaves(whole), strict=True))
        found = [self.compared(k, mine, theirs) for k, (mine, theirs) in enumerate(pairs)]
        for outcome in (Outcome.DIFFERS, Outcome.UNDECIDED):
            for verdict in found:
                if verdict.outcome is outcome:
                    return replace(verdict, results=len(pairs))
        return Verdict(Outcome.EQUAL, len(pairs))

    def compared(self, k: int, own: Value, whole: Value) -> Verdict:
        if own is None and whole is None:
            return Verdict(Outcome.EQUAL, 1)
        if isinstance(own, Unknown):
            return self.at(Outcome.UNDECIDED, k, own.instruction, own.why)
        if isinstance(whole, Unknown):
            why = f"of the unsharded program the result is not known: {whole.why} ({whole.instruction.name})"
            return self.at(Outcome.UNDECIDED, k, self.defining(k), why)
        if own.element_type is not whole.element_type or whole.parts is not None or whole.assumed:
            return self.at(Outcome.UNDECIDED, k, self.defining(k), "there is no rule for it in the unsharded program")
        if 0 in whole.dims:
            return Verdict(Outcome.EQUAL, 1)
        placed = coordinates(own, whole, self.sharded.space.devices)
        if placed is None and self.is_at_shards(k, own, whole):
            placed = [None] * len(own.dims)
        if placed is None:
            return self.unrelated(k, own, whole)
        if own.assumed:
            doubt = self.sharded.space.doubts[min(own.assumed)]
            return replace(self.at(Outcome.DIFFERS, k, doubt.instruction, doubt.why), is_assumed=True)
        if own.scale != whole.scale and not own.is_zero:
            times = own.scale / whole.scale
            said = f"{times} times" if times.denominator == 1 else f"{times} of"
            return self.at(Outcome.DIFFERS, k, self.defining(k), f"it is {said} the value of the unsharded program")
        if own.parts is not None:
            instruction = self.origin(own) or self.defining(k)
            return self.at(Outcome.DIFFERS, k, instruction, self.described_parts(k, own))
        elsewhere = self.misplaced(k, own, whole, placed)
        if elsewhere is not None:
            return self.at(Outcome.DIFFERS, k, self.defining(k), elsewhere)
        return Verdict(Outcome.EQUAL, 1)

    def is_at_shards(self, k: int, own: Relation, whole: Relation) -> bool:
        """Whether devices have the elements of the whole result that are stated, whatever the indices of its term."""
        shards = self.shards[k]
        if shards is None or own.term is not whole.term or shards.shard_dims(whole.dims) != own.dims:
            return False
        firsts = np.array(shards.places).reshape(len(shards.places), -1) * np.array(own.dims, np.int64)
        return lies_at(own, whole, firsts)

    def disagree(self, k: int, own: Relation) -> bool:
        """Whether devices whose results are to be the same have different parts."""
        shards = self.shards[k]
        if shards is None or own.parts is None or own.assumed:
            return False
        having: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        columns = sorted(own.parts.columns)
        for device, place in enumerate(shards.places):
            having.setdefault(place, set()).add(tuple(column[device] for column in columns))
        return any(len(found) > 1 for found in having.values())

    def described_parts(self, k: int, own: Relation) -> str:
        assert own.parts is not None
        columns = own.parts.columns
        if own.parts.is_missing_some and own.parts.kind == "add":
            return "terms of a sum are on no device that takes part in it"
        uniform = all(len(set(column)) == 1 for column in columns)
        if own.parts.kind == "add" and uniform and not own.parts.is_missing_some:
            times = sorted({column[0] for column in columns})
            return f"of the terms of a sum some are added {times[-1]} times, others {times[0]} times"
        if self.sharded.space.ones in columns:
            return f"{own.parts.described()} is combined with a value that every device has whole"
        return f"out{k} is {own.parts.described()}: nothing takes the devices' parts together"

    # --- where ---------------------------------------------------------------------------------------------------

    def at(self, outcome: Outcome, k: int, instruction: Instruction, why: str) -> Verdict:
        module = self.sharded.module
        where = module.locate(instruction, "opcode")
        return Verdict(outcome, 1, instruction, where, module.frame(instruction), why, k)

    def defining(self, k: int) -> Instruction:
        """The instruction that computes a result, behind tuples and copies."""
        return _defining(self.sharded.module, k)

    def origin(self, own: Relation) -> Instruction | None:
        """The first instruction that has the same parts as a result."""
        used = reached(iter([own.term]))
        return next((i for i, r in self.sharded.relations() if r.parts == own.parts and r.term in used), None)

    def unrelated(self, k: int, own: Relation, whole: Relation) -> Verdict:
        """Where a result becomes something that the unsharded program doesn't compute."""
        if self.disagree(k, own):
            instruction = self.origin(own) or self.defining(k)
            return self.at(Outcome.DIFFERS, k, instruction, self.described_parts(k, own))
        if (times := _other_factor(own, whole)) is not None:
            why = f"a term of this sum is {times} times that of the unsharded program"
            return self.at(Outcome.DIFFERS, k, self.defining(k), why)
        if own.assumed:
            doubt = self.sharded.space.doubts[min(own.assumed)]
            return self.at(Outcome.UNDECIDED, k, doubt.instruction, doubt.why)
        known = reached(r.term for r in leaves_of(self.unsharded) if isinstance(r, Relation))
        used = reached(iter([own.term]))
        for instruction, relation in self.sharded.relations():
            if relation.term in known or relation.term not in used:
                continue
            if all(term in known for term, _ in relation.term.operands):
                why = "the unsharded program computes nothing of which this is a part"
                return self.at(Outcome.UNDECIDED, k, instruction, why)
        why = "the unsharded program has its elements in other places"
        return self.at(Outcome.UNDECIDED, k, self.defining(k), why)

    # --- how results lie -----------------------------------------------------------------------------------------

    def misplaced(self, k: int, own: Relation, whole: Relation, placed: Coordinates) -> str | None:
        """Why the devices' arrays aren't the shards of the whole; None where they are."""
        shards = self.shards[k]
        for dim, rows in enumerate(placed):
            size, n = whole.dims[dim], own.dims[dim]
            if shards is not None and shards.tiles[dim] * n != size:
                return f"dimension {dim} has {n} of {size} elements, {shards.tiles[dim]} shards are stated"
            if shards is None and rows is not None and (n == 0 or size % n):
                return f"dimension {dim} of {size} elements is in parts of {n}"
        if shards is not None:
            firsts = np.array(shards.places).reshape(len(shards.places), -1) * np.array(own.dims, np.int64)
        else:
            blocks = [np.zeros(self.sharded.space.devices, np.int64) if r is None else r[:, 0] for r in placed]
            each = [b // max(n, 1) * n for b, n in zip(blocks, own.dims, strict=True)]
            firsts = np.array(each).reshape(len(each), self.sharded.space.devices).T
        if not lies_at(own, whole, firsts):
            for dim, rows in enumerate(placed):
                wrong = None if rows is None else _first_wrong(rows, firsts[:, dim])
                if wrong is not None:
                    device, has = wrong
                    first = firsts[device, dim]
                    return (
                        f"along dimension {dim} device {device} has elements {has} of the unsharded program's result, "
                        f"its shard is {first} to {first + own.dims[dim] - 1}"
                    )
            return "devices have other elements of the unsharded program's result than their shards"
        return None if shards is not None else self.incomplete(own, whole, placed)

    def incomplete(self, own: Relation, whole: Relation, placed: Coordinates) -> str | None:
        """Where nothing states the shards: whether all blocks are there."""
        blocks = set()
        for device in range(self.sharded.space.devices):
            blocks.add(tuple(0 if rows is None else int(rows[device, 0]) for rows in placed))
        wanted = 1
        for rows, n, size in zip(placed, own.dims, whole.dims, strict=True):
            wanted *= 1 if rows is None else size // max(n, 1)
        if len(blocks) < wanted:
            return f"the devices have {len(blocks)} of {wanted} blocks of the unsharded program's result"
        return None


def _other_factor(own: Relation, whole: Relation) -> Fraction | None:
    """By which factor one term of two sums differs that are otherwise the same; None of other values."""
    keys = own.term.key, whole.term.key
    if own.parts is not None or own.assumed or own.term.operands != whole.term.operands:
        return None
    if any(not isinstance(k, tuple) or not isinstance(k[0], tuple) or k[0][0] != "add" for k in keys):
        return None
    mine, theirs = ([f * r.scale for f in r.term.key[0][1]] for r in (own, whole))  # type: ignore[index]
    ratios = {a / b for a, b in zip(mine, theirs, strict=True)} - {Fraction(1)}
    return ratios.pop() if len(ratios) == 1 else None


def leaves_of(deduction: Deduction) -> Iterator[Value]:
    for value in deduction.found.values():
        yield from flat_leaves(value)


def _first_wrong(rows: Array, firsts: Array) -> tuple[int, str] | None:
    wanted = firsts[:, None] + np.arange(rows.shape[1])
    wrong = np.flatnonzero((rows != wanted).any(axis=1))
    if not wrong.size:
        return None
    device = int(wrong[0])
    has = rows[device]
    if (np.diff(has) == 1).all():
        return device, f"{has[0]} to {has[-1]}"
    return device, ", ".join(map(str, has[:8])) + (", …" if has.size > 8 else "")


def _defining(module: Module, k: int) -> Instruction:
    computation, number = module.entry_computation, k
    instruction = computation.root_instruction
    while True:
        op = instruction.op
        if op.role.is_tuple:
            for name in instruction.operands:
                count = len(list(computation[name].shape.leaves()))
                if number < count:
                    instruction = computation[name]
                    break
                number -= count
        elif op.role.is_tuple_element:
            source = computation[instruction.operands[0]]
            assert source.shape.elements is not None
            assert op.element_index is not None
            number += sum(len(list(e.leaves())) for e in source.shape.elements[: op.element_index])
            instruction = source
        elif isinstance(op, Copy):
            instruction = computation[instruction.operands[0]]
        elif op.lowering is Lowering.CALL:
            computation = module[op.called_computations[0]]
            instruction = computation.root_instruction
        else:
            return instruction


__all__ = ["Comparison"]
