"""Loops by induction over what they carry, and which loop of the unsharded program one of the sharded program is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from distxla.ir.instruction import Instruction
from distxla.ir.nested_values import flat_leaves, nested
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.control_flow import While
from distxla.proofs.coordinates import coordinates
from distxla.proofs.relations.inference import Inference, Reshape
from distxla.proofs.relations.lines import Lines
from distxla.proofs.relations.relation import Relation, Unknown, Value, united
from distxla.proofs.relations.space import Space

MOST_ROUNDS = 12
MOST_GUESSES = 16


@dataclass(frozen=True)
class Loop:
    """A loop of the unsharded program.

    carried: for each leaf the value at the beginning of any iteration.  begin, next: its first value, and that of the
    next iteration.  invariant: of each leaf whether the body passes it on.
    """

    number: int
    shapes: tuple[Shape, ...]
    carried: tuple[Value, ...]
    begin: tuple[Value, ...]
    next: tuple[Value, ...]
    invariant: tuple[bool, ...]
    condition: Value
    results: tuple[Value, ...]


def _invariant(inference: Inference, instruction: Instruction, count: int) -> tuple[bool, ...]:
    """Which elements of a flat tuple the body passes on unchanged."""
    assert isinstance(instruction.op, While)
    body = inference.module[instruction.op.body]
    root = body.root_instruction
    if not root.op.role.is_tuple or len(root.operands) != count:
        return (False,) * count
    elements = [body[name] for name in root.operands]
    return tuple(
        e.op.element_index == k and body[e.operands[0]].op.role.is_parameter if e.op.role.is_tuple_element else False
        for k, e in enumerate(elements)
    )


class ReferenceLoops:
    """Of the unsharded program: names what its loops carry, and notes what the sharded one is compared with."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.reshapes: list[Reshape] = []

    def reshapes_like(self, relation: Relation, dims: tuple[int, ...]) -> list[Reshape | None]:
        self.reshapes.append((relation.dims, dims))
        return [None]

    def loop(self, inference: Inference, instruction: Instruction, operand: Value) -> Value:
        assert isinstance(instruction.op, While)
        shape, op = instruction.shape, instruction.op
        shapes = tuple(shape.leaves())
        if isinstance(operand, Unknown):
            return operand
        begin = tuple(flat_leaves(operand))
        number = len(self.loops)
        self.loops.append(Loop(number, shapes, (), (), (), (), None, ()))  # inner loops get the next numbers
        invariant = _invariant(inference, instruction, len(begin))
        carried = tuple(
            value if is_invariant or value is None else inference.space.symbol(("carried", number, k), shapes[k])
            for k, (value, is_invariant) in enumerate(zip(begin, invariant, strict=True))
        )
        argument = nested(shape, iter(carried))
        after = tuple(flat_leaves(inference.called(instruction, op.body, [argument])))
        condition = inference.called(instruction, op.condition, [argument])
        doubts = united(v for v in (*begin, *after, condition) if isinstance(v, Relation))
        results = tuple(
            value
            if is_invariant or value is None
            else inference.space.symbol(("after loop", number, k), shapes[k]).changed(assumed=doubts)
            for k, (value, is_invariant) in enumerate(zip(begin, invariant, strict=True))
        )
        self.loops[number] = Loop(number, shapes, carried, begin, after, invariant, condition, results)
        return nested(shape, iter(results))


Placement = list[Lines | None]  # of an array of the loop, by dimension; None: not known yet


class FollowingLoops:
    """Of the sharded program: each loop is one of the unsharded program whose values it has in parts, or unknown."""

    def __init__(self, reference: ReferenceLoops) -> None:
        self.reference = reference
        self._chosen: dict[tuple[str, ...], Loop] = {}
        self._taken: set[int] = set()
        self._placements: dict[tuple[int, int], dict[Lines, None]] = {}

    def note(self, lines: Lines, whole: int) -> None:
        """That devices have these indices of a dimension of so many: other arrays may be cut like this."""
        self._placements.setdefault((lines.count, whole), {})[lines] = None

    def reshapes_like(self, relation: Relation, dims: tuple[int, ...]) -> list[Reshape | None]:
        """What a reshape may be in the unsharded program, likely ones first; None: as on the device."""
        cut = {d for axis in relation.axes for d, lines in axis if d >= 0 and not lines.is_uniform}
        found: dict[Reshape, bool] = {}
        for old, new in self.reference.reshapes:
            if len(old) != len(relation.dims) or len(new) != len(dims):
                continue
            if all(n % m == 0 for n, m in zip((*old, *new), (*relation.dims, *dims)) if m):
                fits = {d for d, n in enumerate(old) if n != relation.dims[d]} == cut
                found[old, new] = fits
        return [*sorted(found, key=lambda pair: not found[pair]), None]

    def loop(self, inference: Inference, instruction: Instruction, operand: Value) -> Value:
        if isinstance(operand, Unknown):
            return operand
        begin = tuple(flat_leaves(operand))
        shapes = tuple(instruction.shape.leaves())
        key = (*inference.path, instruction.name)
        known = self._chosen.get(key)
        why = Unknown(instruction, "the unsharded program has no loop that carries the same")
        for loop in [known] if known is not None else self._candidates(inference.space, shapes, begin):
            results = _Induction(self, inference, instruction, loop, begin).run()
            if any(isinstance(r, Relation) for r in results):
                self._chosen[key] = loop
                self._taken.add(loop.number)
                return nested(instruction.shape, iter(results))
            why = next((r for r in results if isinstance(r, Unknown)), why)
        return nested(instruction.shape, iter([why] * len(shapes)))

    def _candidates(self, space: Space, shapes: Sequence[Shape], begin: Sequence[Value]) -> Iterator[Loop]:
        for loop in sorted(self.reference.loops, key=lambda loop: loop.number in self._taken):
            if len(loop.shapes) != len(shapes) or not loop.results:
                continue
            if all(_may_be_cut(a, b) for a, b in zip(shapes, loop.shapes)):
                yield loop


def _may_be_cut(own: Shape, whole: Shape) -> bool:
    if own.is_token or whole.is_token:
        return own.is_token and whole.is_token
    same = own.dtype is whole.dtype and own.rank == whole.rank
    return same and all(n % m == 0 if m else n == 0 for n, m in zip(whole.dims, own.dims))


class _Induction:
    """Shows that what a loop carries is placed in the same way at the end of an iteration as at its beginning."""

    def __init__(
        self,
        loops: FollowingLoops,
        inference: Inference,
        instruction: Instruction,
        loop: Loop,
        begin: tuple[Value, ...],
    ) -> None:
        self.loops, self.inference, self.space = loops, inference, inference.space
        self.instruction, self.loop, self.begin = instruction, loop, begin
        own = _invariant(inference, instruction, len(begin))
        self.invariant = tuple(a and b for a, b in zip(own, loop.invariant))
        self.bad: dict[int, Unknown] = {}
        self.fixed: list[Placement] = [[] for _ in begin]  # as the first value has it
        self.placed: list[Placement] = [[] for _ in begin]
        for k, value in enumerate(begin):
            self.enter(k, value)

    def enter(self, k: int, value: Value) -> None:
        wanted = self.loop.begin[k]
        if value is None or self.invariant[k]:
            return
        if isinstance(value, Unknown) or not isinstance(wanted, Relation):
            self.bad[k] = value if isinstance(value, Unknown) else self.unknown(k, "the unsharded value isn't known")
            return
        if self.loop.invariant[k]:
            self.bad[k] = self.unknown(k, "the unsharded loop doesn't change it")
            return
        found = self.placement(value, wanted)
        if found is None:
            self.bad[k] = self.unknown(k, "its first value is not that of the unsharded loop")
            return
        self.fixed[k], self.placed[k] = found, list(found)

    def unknown(self, k: int, why: str) -> Unknown:
        return Unknown(self.instruction, f"element {k} that the loop carries: {why}")

    def placement(self, value: Value, wanted: Relation) -> Placement | None:
        if not isinstance(value, Relation) or value.parts is not None or value.scale != wanted.scale:
            return None
        if wanted.parts is not None:
            return None
        found = coordinates(value, wanted, self.space.devices)
        if found is None:
            return None
        placed = [None if rows is None else self.space.lines(rows) for rows in found]
        for lines, n in zip(placed, wanted.dims, strict=True):
            if lines is not None:
                self.loops.note(lines, n)
        return placed

    def run(self) -> list[Value]:
        for choice in self.choices():
            before = [list(p) for p in self.placed], dict(self.bad)
            for k, placed in enumerate(self.placed):
                for d, lines in enumerate(placed):
                    if lines is None:
                        placed[d] = choice.get((self.begin[k].dims[d], self.loop.shapes[k].dims[d]))
            results = self.settle()
            if len(self.bad) <= len(before[1]):
                return results
            self.placed, kept = before[0], self.bad
            self.bad = before[1]
        self.bad = kept
        return results

    def choices(self) -> Iterator[dict[tuple[int, int], Lines]]:
        """How dimensions are cut of which the first value doesn't say it."""
        open_ = sorted(
            {
                (self.begin[k].dims[d], self.loop.shapes[k].dims[d])
                for k, placed in enumerate(self.placed)
                for d, lines in enumerate(placed)
                if lines is None
            }
        )
        ways = [
            [self.space.range(n)] if n == whole else list(self.loops._placements.get((n, whole), ()))
            for n, whole in open_
        ]
        for number, choice in enumerate(product(*ways)):
            if number < MOST_GUESSES:
                yield dict(zip(open_, choice, strict=True))
        if not all(ways):
            yield {pair: way[0] for pair, way in zip(open_, ways, strict=True) if way}

    def settle(self) -> list[Value]:
        op = self.instruction.op
        assert isinstance(op, While)
        for _ in range(MOST_ROUNDS):
            arguments = [self.carried(k) for k in range(len(self.begin))]
            argument = nested(self.instruction.shape, iter(arguments))
            after = tuple(flat_leaves(self.inference.called(self.instruction, op.body, [argument])))
            if self.is_stable(after):
                condition = self.inference.called(self.instruction, op.condition, [argument])
                return self.results(arguments, after, condition)
        return [self.unknown(k, "its relation changes from iteration to iteration") for k in range(len(self.begin))]

    def carried(self, k: int) -> Value:
        """The value of a leaf at the beginning of any iteration."""
        value = self.begin[k]
        if value is None or self.invariant[k]:
            return value
        if k in self.bad:
            return self.bad[k]
        return self.of_term(k, self.loop.carried[k])

    def of_term(self, k: int, whole: Relation) -> Value:
        dims = self.begin[k].dims
        if any(lines is None for lines in self.placed[k]):
            self.bad[k] = self.unknown(k, "nothing says how it is cut")
            return self.bad[k]
        axes = tuple(
            ((d, lines),) if lines is not None and whole.term.dims[d] != 1 else ((-1, self.space.range(1)),)
            for d, lines in enumerate(self.placed[k])
        )
        return Relation(whole.term, axes, dims)

    def is_stable(self, after: Sequence[Value]) -> bool:
        """Whether the values after an iteration are placed as before it; notes what is found to be otherwise."""
        is_stable = True
        for k, value in enumerate(after):
            if value is None or self.invariant[k] or k in self.bad:
                continue
            wanted = self.loop.next[k]
            found = self.placement(value, wanted) if isinstance(wanted, Relation) else None
            if found is None:
                is_unknown = isinstance(value, Unknown)
                why = "its next value is not that of the unsharded loop"
                self.bad[k] = value if is_unknown else self.unknown(k, why)
                is_stable = False
                continue
            for d, lines in enumerate(found):
                if lines is None or lines is self.placed[k][d]:
                    continue
                is_stable = False
                if self.fixed[k][d] is not None:
                    self.bad[k] = self.unknown(k, "its next value lies otherwise than its first one")
                    break
                self.fixed[k][d] = self.placed[k][d] = lines
        return is_stable

    def results(self, arguments: Sequence[Value], after: Sequence[Value], condition: Value) -> list[Value]:
        wanted = self.loop.condition
        is_same = isinstance(condition, Relation) and isinstance(wanted, Relation)
        if not is_same or self.placement(condition, wanted) is None:
            if isinstance(condition, Unknown):
                return [condition] * len(arguments)
            return [self.unknown(k, "the condition is not that of the unsharded loop") for k in range(len(arguments))]
        doubts = united(v for v in (*self.begin, *after, condition) if isinstance(v, Relation))
        found: list[Value] = []
        for k, value in enumerate(self.begin):
            if value is None or self.invariant[k]:
                found.append(value)
            elif k in self.bad:
                found.append(self.bad[k])
            else:
                relation = self.of_term(k, self.loop.results[k])
                found.append(relation.changed(assumed=doubts))
        return found


__all__ = ["FollowingLoops", "Loop", "ReferenceLoops"]
