"""Where wrong values begin: from a result that differs back to the first array that goes wrong, and why it does."""

from __future__ import annotations

from typing import Final

from distxla.differ.alignment import CONSTANT, MOVED, Pair, Twins
from distxla.differ.op_kinds import divides, joins, keeps_whole, moves_between_devices
from distxla.differ.recording import Recorded
from distxla.differ.relations import Relation
from distxla.differ.source_lines import Frame, frames, written_as
from distxla.lazy_dataclass import dataclass, replace

_MOST_BEFORE: Final = 400  # arrays in which a permute, or a line, is looked for


@dataclass(frozen=True)
class Finding:
    """kind: in words, short.  at: the array that is the answer.  line: the user's, of the place to look at.

    hint: a sentence with the numbers that say so.  use: the array that takes it for something else, if one does.
    """

    kind: str
    at: Pair
    line: str | None
    hint: str
    use: Pair | None = None


class Origin:
    """twins: all arrays of both runs."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins

    def find(self, result: Recorded) -> Finding:
        """result: the array of the sharded run that is a result and differs."""
        found = self._found(result)
        if found.line is None:
            found = replace(found, line=self._nearest_line(found.at))
        use = found.use or found.at
        last = use.array.iterations[-1] if use.array.iterations else 0
        if last == 0 or not self._was_right(use.array):
            return found
        right = "iteration 0" if last == 1 else f"iterations 0 to {last - 1}"
        return replace(found, hint=f"{found.hint}; in {right} {_named(use)} is right")

    def _nearest_line(self, pair: Pair) -> str | None:
        """Of what the array is made of, the nearest one first."""
        seen, waiting = {pair.array.number}, [pair.array.number]
        while waiting and len(seen) < _MOST_BEFORE:
            number = max(waiting)
            waiting.remove(number)
            line = self._line(self._twins.pairs[number])
            if line is not None:
                return line
            for n in self._twins.pairs[number].array.made_of:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return None

    def _was_right(self, array: Recorded) -> bool:
        """Whether the instruction's arrays of all iterations before are right."""
        outer, last = array.iterations[:-1], array.iterations[-1]
        return all(
            _is_right(pair)
            for pair in self._twins.pairs[: array.number]
            if pair.array.instruction is array.instruction
            and (pair.array.leaf, pair.array.iterations[:-1]) == (array.leaf, outer)
            and pair.array.iterations[-1] < last
        )

    def _found(self, result: Recorded) -> Finding:
        wrong = self._first_wrong(result)
        if not wrong:
            return self._returned(self._twins.pairs[result.number])
        pair = self._twins.pairs[wrong[0]]
        for each in wrong if pair.by != "name" else wrong[:1]:
            for explain in (self._partial, self._scaled):
                found = explain(self._twins.pairs[each])
                if found is not None:
                    return found
        by_place = (self._collective, self._older, self._mixed, self._everywhere, self._misplaced)
        for explain_place in (*by_place, self._permuted, self._offset):
            found = explain_place(pair)
            if found is not None:
                return found
        return Finding("unexplained", pair, self._line(pair), self._sentence(pair))

    # --- the first wrong array ----------------------------------------------------------------------------------------

    def _first_wrong(self, result: Recorded) -> list[int]:
        """The arrays on ways of wrong ones to the result; first the one that is wrong while all that it is made of, as
        far as it has a twin, is right, then the others in order. None where the result itself is right."""
        pairs = self._twins.pairs
        if _is_right(pairs[result.number]):
            return []
        found = sorted(self._wrong_before(result.number))
        wrong, has_cause = set(found), set()  # has_cause: made of a wrong one with a twin, however indirectly
        for number in found:  # in order: what an array is made of comes before it
            before = [n for n in pairs[number].array.made_of if n in wrong]
            if any(pairs[n].twin is not None or n in has_cause for n in before):
                has_cause.add(number)
            elif pairs[number].twin is not None:
                return [number, *(n for n in found if n > number)]
        return [n for n in found if self._twins.depends_on_arguments[n]] or found

    def _wrong_before(self, number: int) -> set[int]:
        """The array, and those on a way of wrong ones to it."""
        pairs, seen, waiting = self._twins.pairs, {number}, [number]
        while waiting:
            for n in pairs[waiting.pop()].array.made_of:
                if n not in seen and not _is_right(pairs[n]):
                    seen.add(n)
                    waiting.append(n)
        return seen

    # --- why ----------------------------------------------------------------------------------------------------------

    def _returned(self, pair: Pair) -> Finding:
        """A result whose relation is not what the program says of it."""
        found = pair.relation
        assert found is not None
        if found.is_partial:
            source, line = self._arises(pair, None)
            text = f"{_named(source)} has {found.text}, and it is returned as the whole: {_missing(found, line)}"
            return Finding(_kind(found), source, line, text)
        if found.kind == "scaled":
            return self._times(pair, None)
        if found in (CONSTANT, MOVED):
            text = f"{_named(pair)} is {found.text}, and the unsharded result has other values"
            return Finding(found.kind, pair, self._line(pair), text)
        kind = "local part" if found.kind in ("shard", "part") else found.kind
        text = f"{_named(pair)} is {found.text}, and the result is declared otherwise"
        return Finding(kind, pair, self._line(pair), text)

    def _scaled(self, pair: Pair) -> Finding | None:
        """An operand that is N times too large, or too small."""
        operands = [o for o in self._twins.operands(pair.array) if o.relation is not None]
        scaled = next((o for o in operands if o.relation is not None and o.relation.kind == "scaled"), None)
        return None if scaled is None else self._times(scaled, pair)

    def _times(self, pair: Pair, use: Pair | None) -> Finding:
        """Of an array that is a multiple of the unsharded value."""
        start = self._start(pair)
        assert start.relation is not None
        times = start.relation.times
        number = max(times, 1 / times)
        group = next((g for g in self._twins.devices.groupings if len(g.groups[0]) == round(number)), None)
        parts = [f"{_named(start)} is {_figure(times)} times the unsharded value"]
        if group is not None:
            parts.append(f"{group.name} has {len(group.groups[0])} devices a group")
        before = next((o.relation for o in self._known_operands(start)), None)
        if start.array.instruction.op.is_collective and before is not None:
            if before.kind == "same":
                parts.append(
                    "its operand is the same on all devices already: a second psum, or psum where pmean is meant"
                )
            elif before.kind == "mean":
                parts.append(f"its operand has {before.text}: psum where pmean is meant")
            else:
                parts.append(f"its operand is {before.text}")
        return Finding("times", start, self._line(start), "; ".join(parts), use)

    def _known_operands(self, pair: Pair) -> list[Pair]:
        operands = self._twins.operands(pair.array)
        return [o for o in operands if o.relation is not None and o.relation is not CONSTANT]

    def _collective(self, pair: Pair) -> Finding | None:
        """A collective that makes something wrong of right operands."""
        op = pair.array.instruction.op
        if not op.is_collective:
            return None
        found = next((o.relation for o in self._twins.operands(pair.array) if o.relation is not None), None)
        if found is not None and found.is_partial:
            text = f"its operand has {found.text}, and it does not combine these groups: the axis is another one"
            return Finding("wrong axis", pair, self._line(pair), f"{_named(pair)} is wrong: {text}")
        first = self._first_moved(pair)
        if first is not None and first is not pair:
            return self._displaced(first, pair)
        moved = next((o for o in self._known_operands(pair) if o.relation and o.relation.kind == "permutation"), None)
        if moved is not None and (start := self._start(moved)).array.instruction.op.is_collective:
            return self._displaced(start, pair)
        before = "" if found is None else f"; its operand is {found.text}"
        text = f"{_named(pair)} puts values where the unsharded program does not have them{before}"
        return Finding("permutation", pair, self._line(pair), text)

    def _older(self, pair: Pair) -> Finding | None:
        """An operand that is right by itself, but not the one that the unsharded program has there."""
        if pair.twin is None:
            return None
        ours, theirs = self._twins.operands(pair.array), [self._twins.whole[n] for n in pair.twin.made_of]
        if len(ours) != len(theirs) or pair.array.instruction.opcode != pair.twin.instruction.opcode:
            return None
        for operand, wanted in zip(ours, theirs, strict=True):
            if (
                operand.relation is None
                or operand.relation is CONSTANT
                or operand.twin is None
                or operand.twin is wanted
            ):
                continue
            if self._twins.relation(operand.array, wanted) is None and self._is_older(operand.twin, wanted):
                start = self._moved_from(operand)
                text = (
                    f"{_named(operand)} has the values of {_where(operand.twin)}, an older value; "
                    f"the unsharded program uses {_where(wanted)} there"
                )
                line = self._common_line(start, pair) or self._line(start) or self._line(pair)
                return Finding("older value", start, line, text, pair)
        return None

    def _displaced(self, pair: Pair, use: Pair) -> Finding:
        what = "puts values in other places" if pair.relation is None else f"gives {pair.relation.text}"
        text = (
            f"{_named(pair)} {what}, and {_named(use)}, which uses them, is wrong: the pairs or dimensions are others"
        )
        return Finding("permutation", pair, self._line(pair), text, use)

    def _first_moved(self, pair: Pair) -> Pair | None:
        """The first of the wrong arrays before this one, itself included, that devices have exchanged."""
        pairs = self._twins.pairs
        moved = [
            n for n in self._wrong_before(pair.array.number) if moves_between_devices(pairs[n].array.instruction.op)
        ]
        return pairs[min(moved)] if moved else None

    def _permuted(self, pair: Pair) -> Finding | None:
        """The first wrong array before this one that devices have exchanged, else the nearest one."""
        first = self._first_moved(pair)
        if first is not None:
            return self._displaced(first, pair)
        seen, waiting = {pair.array.number}, [pair.array.number]
        while waiting and len(seen) < _MOST_BEFORE:
            number = max(waiting)
            waiting.remove(number)
            if number != pair.array.number and moves_between_devices(self._twins.pairs[number].array.instruction.op):
                return self._displaced(self._twins.pairs[number], pair)
            for n in self._twins.pairs[number].array.made_of:
                if n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return None

    def _offset(self, pair: Pair) -> Finding | None:
        """An operand that says where a device is, and that nothing in the unsharded program says so."""
        for operand in self._twins.operands(pair.array):
            number = operand.array.number
            if self._twins.depends_on_device[number] and not self._twins.depends_on_arguments[number]:
                text = (
                    f"{_named(operand)} depends on the device's place in the mesh, and {_named(pair)}, which uses it, "
                    "is wrong: another axis, or another size to multiply by, is meant"
                )
                return Finding("offset", operand, self._line(operand) or self._line(pair), text, pair)
        return None

    def _mixed(self, pair: Pair) -> Finding | None:
        """Parts of a value put together with parts of what the value was made of."""
        if not joins(pair.array.instruction.op):
            return None
        operands = [o for o in self._twins.operands(pair.array) if o.twin is not None and o.relation is not None]
        for old in operands:
            for new in operands:
                assert old.twin is not None
                assert new.twin is not None
                if old.twin.dims == new.twin.dims and self._is_older(old.twin, new.twin):
                    text = (
                        f"{_named(pair)} puts {_named(old)}, which has values of {_where(old.twin)}, beside "
                        f"{_named(new)}, which has those of {_where(new.twin)}, a later value"
                    )
                    return Finding("older value", pair, self._line(pair), text, pair)
        return None

    def _is_older(self, value: Recorded, wanted: Recorded) -> bool:
        """Whether what is wanted is made of the value, in however many steps."""
        seen, waiting = {wanted.number}, [wanted.number]
        while waiting:
            for n in self._twins.whole[waiting.pop()].made_of:
                if n == value.number:
                    return True
                if n > value.number and n not in seen:
                    seen.add(n)
                    waiting.append(n)
        return False

    def _partial(self, pair: Pair) -> Finding | None:
        """Partial sums, maxima, … that are used as if they were the whole."""
        operands = [o for o in self._twins.operands(pair.array) if o.relation is not None]
        partial = [o for o in operands if o.relation is not None and o.relation.is_partial]
        if not partial:
            return None
        if pair.array.instruction.op.is_collective:
            return self._collective(pair)
        first = partial[0]
        assert first.relation is not None
        if len(partial) > 1 and divides(pair.array.instruction.op):
            second = partial[1]
            assert second.relation is not None
            text = (
                f"{_named(pair)} divides {first.relation.text} by {second.relation.text}: a mean of means is "
                f"the mean only where all devices count as many; take both sums over all devices first"
            )
            return Finding("mean of means", pair, self._line(pair), text)
        source, line = self._arises(first, pair)
        missing = _missing(first.relation, line)
        text = f"{_named(source)} has {first.relation.text}, and {_named(pair)} uses each as the whole: {missing}"
        return Finding(_kind(first.relation), source, line, text, pair)

    def _everywhere(self, pair: Pair) -> Finding | None:
        """Equal on all devices where the unsharded values differ from part to part."""
        for one in (pair, *self._twins.operands(pair.array)):
            if (
                one.twin is None
                or one.relation is CONSTANT
                or not _is_equal_on_all(one.array)
                or one.array.dims == one.twin.dims
            ):
                continue
            if one.relation is not None and one.relation.kind == "same":
                continue
            start = self._start(one) if one is not pair else one
            text = (
                f"{_named(start)} is the same on all devices; the unsharded value, {_shape(one.twin)} instead of "
                f"{_shape(one.array)}, has other values in each part: nothing in it depends on which device it is on"
            )
            line = self._line(start) if start.array.made_of else self._line(pair)  # of an iota, where it is used
            return Finding("equal on all devices", start, line, text, None if one is pair else pair)
        return None

    def _misplaced(self, pair: Pair) -> Finding | None:
        """Operands that are different parts of their wholes."""
        operands = [
            o for o in self._twins.operands(pair.array) if o.relation is not None and o.relation.offsets is not None
        ]
        odd = next((o for o in operands if o.relation is not None and o.relation.kind in ("permutation", "part")), None)
        if odd is None and len({o.relation.offsets for o in operands if o.relation is not None}) > 1:
            odd = max(operands, key=lambda o: self._start(o).array.number)
        if odd is None or odd.relation is None:
            return None
        start = self._start(odd)
        others = "".join(
            f"; {_named(o)} is {o.relation.text}" for o in operands if o is not odd and o.relation is not None
        )
        text = f"{_named(start)} is {odd.relation.text}{others}: {_named(pair)} puts different parts together"
        line = self._line(start) if start.array.argument is None else self._line(pair)
        return Finding("permutation" if odd.relation.kind == "permutation" else "other part", start, line, text, pair)

    # --- chains -------------------------------------------------------------------------------------------------------

    def _start(self, pair: Pair) -> Pair:
        """The first array with the relation that this one has, upwards."""
        while True:
            before = [
                o
                for o in self._twins.operands(pair.array)
                if o.relation is not None
                and pair.relation is not None
                and (o.relation.kind, o.relation.over, o.relation.times)
                == (pair.relation.kind, pair.relation.over, pair.relation.times)
                and (o.relation.over is not None or o.relation.offsets == pair.relation.offsets)
            ]
            if not before or pair.array.instruction.op.is_collective:
                return pair
            pair = before[0]

    def _moved_from(self, pair: Pair) -> Pair:
        """The first array with these values, upwards through what only moves them."""
        while keeps_whole(pair.array.instruction.op) and not pair.array.instruction.op.is_collective:
            before = [o for o in self._twins.operands(pair.array) if o.twin is pair.twin and o.relation is not None]
            if not before:
                return pair
            pair = before[0]
        return pair

    def _arises(self, pair: Pair, use: Pair | None) -> tuple[Pair, str | None]:
        """The array from which on values are partial, and the line at which they can still be combined."""
        start = self._start(pair)
        line = self._line(start)
        if use is None or "transpose(" not in written_as(start.array.instruction):
            return start, line
        return start, self._common_line(start, use) or line

    def _common_line(self, pair: Pair, use: Pair) -> str | None:
        """Of a gradient: its line in the innermost function that also holds the use of it."""
        users = {(f.function, _file(f)) for f in frames(use.array.module, use.array.instruction)}
        for frame in frames(pair.array.module, pair.array.instruction):
            if (frame.function, _file(frame)) in users:
                return frame.line
        return None

    def _line(self, pair: Pair) -> str | None:
        found = frames(pair.array.module, pair.array.instruction)
        return found[0].line if found else None

    def _sentence(self, pair: Pair) -> str:
        operands = [
            o for o in self._twins.operands(pair.array) if o.relation is not None and o.relation is not CONSTANT
        ]
        of = ", ".join(f"{_named(o)}: {o.relation.text}" for o in operands if o.relation is not None)
        text = f"{_named(pair)} is neither the unsharded value nor a shard or a partial sum of it"
        return f"{text}, though what it is made of is right ({of})" if of else text


def _is_right(pair: Pair) -> bool:
    return pair.relation is not None


def _is_equal_on_all(array: Recorded) -> bool:
    first, *others = array.arrays()
    return all(other is first or other.tobytes() == first.tobytes() for other in others)


def _kind(found: Relation) -> str:
    return {"sum": "not reduced", "mean": "local mean", "maximum": "local maximum", "minimum": "local minimum"}[
        found.kind
    ]


def _missing(found: Relation, line: str | None) -> str:
    assert found.over is not None
    name = {"sum": "psum", "mean": "pmean", "maximum": "pmax", "minimum": "pmin"}[found.kind]
    return f"a {name} over {found.over.name} is missing" + (f" at {line}" if line else "")


def _named(pair: Pair) -> str:
    return _where(pair.array)


def _where(array: Recorded) -> str:
    found = frames(array.module, array.instruction)
    name = array.instruction.name if array.argument is None else f"arg{array.argument}"
    return f"{name} ({found[0].line})" if found else name


def _shape(array: Recorded) -> str:
    return f"[{','.join(map(str, array.dims))}]"


def _figure(number: float) -> str:
    return f"{number:.6g}"


def _file(frame: Frame) -> str:
    return frame.line.rpartition(":")[0]


__all__ = ["Finding", "Origin"]
