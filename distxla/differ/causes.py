"""Why an array is wrong though what it is made of is right: one function a kind of fault, each with its evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from distxla.differ.alignment import CONSTANT, MOVED, ArrayPair
from distxla.differ.ancestry import Ancestry, common_line, line_of
from distxla.differ.op_kinds import divides, joins
from distxla.differ.recording import Recorded
from distxla.differ.relations import Relation
from distxla.lazy_dataclass import dataclass

_KINDS: Final = {"sum": "not reduced", "mean": "local mean", "maximum": "local maximum", "minimum": "local minimum"}
_REDUCTIONS: Final = {"sum": "psum", "mean": "pmean", "maximum": "pmax", "minimum": "pmin"}


@dataclass(frozen=True)
class Finding:
    """kind: in words, short.  at: the array that is the answer.  line: the user's, of the place to look at.

    hint: a sentence with the numbers that say so.  use: the array that takes it for something else, if one does.
    """

    kind: str
    at: ArrayPair
    line: str | None
    hint: str
    use: ArrayPair | None = None


Cause = Callable[[Ancestry, ArrayPair], Finding | None]


def partial_values(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """Partial sums, maxima, … that are used as if they were the whole."""
    partial = [(operand, relation) for operand, relation in ancestry.operands(pair) if relation.is_partial]
    if not partial:
        return None
    if pair.array.instruction.op.is_collective:
        return collective(ancestry, pair)
    operand, found = partial[0]
    if len(partial) > 1 and divides(pair.array.instruction.op):
        text = (
            f"{named(pair.array)} divides {found.text} by {partial[1][1].text}: a mean of means is "
            "the mean only where all devices count as many; take both sums over all devices first"
        )
        return Finding("mean of means", pair, line_of(pair.array), text)
    source, line = ancestry.arises(operand, pair)
    use = f"{named(pair.array)} uses each as the whole"
    text = f"{named(source.array)} has {found.text}, and {use}: {_missing(found, line)}"
    return Finding(_KINDS[found.kind], source, line, text, pair)


def scaled_operand(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """An operand that is N times too large, or too small."""
    scaled = next((operand for operand, relation in ancestry.operands(pair) if relation.kind == "scaled"), None)
    return None if scaled is None else _times(ancestry, scaled, pair)


def collective(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """A collective that makes something wrong of right operands."""
    if not pair.array.instruction.op.is_collective:
        return None
    found = next((relation for _, relation in ancestry.operands(pair)), None)
    if found is not None and found.is_partial:
        text = f"its operand has {found.text}, and it does not combine these groups: the axis is another one"
        return Finding("wrong axis", pair, line_of(pair.array), f"{named(pair.array)} is wrong: {text}")
    first = ancestry.first_exchanged(pair)
    if first is not None and first is not pair:
        return _displaced(first, pair)
    moved = next((operand for operand, relation in ancestry.telling(pair) if relation.kind == "permutation"), None)
    if moved is not None and (start := ancestry.start(moved)).array.instruction.op.is_collective:
        return _displaced(start, pair)
    before = "" if found is None else f"; its operand is {found.text}"
    text = f"{named(pair.array)} puts values where the unsharded program does not have them{before}"
    return Finding("permutation", pair, line_of(pair.array), text)


def older_operand(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """An operand that is right by itself, but is what the unsharded program's operand was made of."""
    twins = ancestry.twins
    if pair.twin is None or pair.array.instruction.opcode != pair.twin.instruction.opcode:
        return None
    ours, theirs = twins.operands(pair.array), [twins.whole[n] for n in pair.twin.made_of]
    if len(ours) != len(theirs):
        return None
    for operand, wanted in zip(ours, theirs, strict=True):
        twin = operand.twin
        if operand.relation is None or operand.relation is CONSTANT or twin is None or twin is wanted:
            continue
        if twins.relation(operand.array, wanted) is None and ancestry.is_older(twin, wanted):
            start = ancestry.moved_from(operand)
            text = (
                f"{named(operand.array)} has the values of {named(twin)}, an older value; "
                f"the unsharded program uses {named(wanted)} there"
            )
            line = common_line(start.array, pair.array) or line_of(start.array) or line_of(pair.array)
            return Finding("older value", start, line, text, pair)
    return None


def mixed_ages(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """Parts of a value put together with parts of what the value was made of."""
    if not joins(pair.array.instruction.op):
        return None
    operands = [(operand.array, operand.twin) for operand, _ in ancestry.operands(pair) if operand.twin is not None]
    for old, old_twin in operands:
        for new, new_twin in operands:
            if old_twin.dims == new_twin.dims and ancestry.is_older(old_twin, new_twin):
                text = (
                    f"{named(pair.array)} puts {named(old)}, which has values of {named(old_twin)}, beside "
                    f"{named(new)}, which has those of {named(new_twin)}, a later value"
                )
                return Finding("older value", pair, line_of(pair.array), text, pair)
    return None


def same_everywhere(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """Equal on all devices where the unsharded values differ from part to part."""
    for one in (pair, *ancestry.twins.operands(pair.array)):
        if one.twin is None or one.relation is CONSTANT or one.array.dims == one.twin.dims:
            continue
        if (one.relation is not None and one.relation.kind == "same") or not _is_equal_on_all(one.array):
            continue
        start = one if one is pair else ancestry.start(one)
        text = (
            f"{named(start.array)} is the same on all devices; the unsharded value, {_shape(one.twin)} instead of "
            f"{_shape(one.array)}, has other values in each part: nothing in it depends on which device it is on"
        )
        line = line_of((start if start.array.made_of else pair).array)  # of an iota, where it is used
        return Finding("equal on all devices", start, line, text, None if one is pair else pair)
    return None


def different_parts(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """Operands that are different parts of their wholes."""
    cut = [(operand, relation) for operand, relation in ancestry.operands(pair) if relation.offsets is not None]
    odd = next((one for one in cut if one[1].kind in ("permutation", "part")), None)
    if odd is None and len({relation.offsets for _, relation in cut}) > 1:
        odd = max(cut, key=lambda one: ancestry.start(one[0]).array.number)
    if odd is None:
        return None
    start = ancestry.start(odd[0])
    others = "".join(
        f"; {named(operand.array)} is {relation.text}" for operand, relation in cut if operand is not odd[0]
    )
    text = f"{named(start.array)} is {odd[1].text}{others}: {named(pair.array)} puts different parts together"
    line = line_of((start if start.array.argument is None else pair).array)
    return Finding("permutation" if odd[1].kind == "permutation" else "other part", start, line, text, pair)


def exchanged(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """Something before it that devices have exchanged: the first wrong one, else the nearest."""
    found = ancestry.first_exchanged(pair) or ancestry.nearest_exchanged(pair)
    return None if found is None else _displaced(found, pair)


def offset(ancestry: Ancestry, pair: ArrayPair) -> Finding | None:
    """An operand that says where in the mesh a device is."""
    twins = ancestry.twins
    for operand in twins.operands(pair.array):
        number = operand.array.number
        if twins.depends_on_device[number] and not twins.depends_on_arguments[number]:
            text = (
                f"{named(operand.array)} depends on the device's place in the mesh, and {named(pair.array)}, which "
                "uses it, is wrong: another axis, or another size to multiply by, is meant"
            )
            return Finding("offset", operand, line_of(operand.array) or line_of(pair.array), text, pair)
    return None


def unexplained(ancestry: Ancestry, pair: ArrayPair) -> Finding:
    of = ", ".join(f"{named(operand.array)}: {relation.text}" for operand, relation in ancestry.telling(pair))
    text = f"{named(pair.array)} is neither the unsharded value nor a shard or a partial sum of it"
    text += f", though what it is made of is right ({of})" if of else ""
    return Finding("unexplained", pair, line_of(pair.array), text)


def returned(ancestry: Ancestry, pair: ArrayPair, found: Relation) -> Finding:
    """A result whose relation is not what the program says of it."""
    if found.is_partial:
        source, line = ancestry.arises(pair, None)
        text = f"{named(source.array)} has {found.text}, and it is returned as the whole: {_missing(found, line)}"
        return Finding(_KINDS[found.kind], source, line, text)
    if found.kind == "scaled":
        return _times(ancestry, pair, None)
    if found in (CONSTANT, MOVED):
        text = f"{named(pair.array)} is {found.text}, and the unsharded result has other values"
        return Finding(found.kind, pair, line_of(pair.array), text)
    kind = "local part" if found.kind in ("shard", "part") else found.kind
    text = f"{named(pair.array)} is {found.text}, and the result is declared otherwise"
    return Finding(kind, pair, line_of(pair.array), text)


# Of values in right programs, too: they explain a wrong array, whatever its twin was found by.
CERTAIN: Final[tuple[Cause, ...]] = (partial_values, scaled_operand)
# The likeliest first.
OTHERS: Final[tuple[Cause, ...]] = (
    collective,
    older_operand,
    mixed_ages,
    same_everywhere,
    different_parts,
    exchanged,
    offset,
)


def named(array: Recorded) -> str:
    """`dot.3 (model.py:12)`."""
    line = line_of(array)
    name = array.instruction.name if array.argument is None else f"arg{array.argument}"
    return name if line is None else f"{name} ({line})"


def _times(ancestry: Ancestry, pair: ArrayPair, use: ArrayPair | None) -> Finding:
    """Of an array that is a multiple of the unsharded value."""
    start = ancestry.start(pair)
    assert start.relation is not None
    times = start.relation.times
    number = round(max(times, 1 / times))
    parts = [f"{named(start.array)} is {times:.6g} times the unsharded value"]
    group = next((g for g in ancestry.twins.devices.groupings if len(g.groups[0]) == number), None)
    if group is not None:
        parts.append(f"{group.name} has {number} devices a group")
    before = next((relation for _, relation in ancestry.telling(start)), None)
    if start.array.instruction.op.is_collective and before is not None:
        parts.append(_before_the_sum(before))
    return Finding("times", start, line_of(start.array), "; ".join(parts), use)


def _before_the_sum(found: Relation) -> str:
    if found.kind == "same":
        return "its operand is the same on all devices already: a second psum, or psum where pmean is meant"
    if found.kind == "mean":
        return f"its operand has {found.text}: psum where pmean is meant"
    return f"its operand is {found.text}"


def _displaced(pair: ArrayPair, use: ArrayPair) -> Finding:
    what = "puts values in other places" if pair.relation is None else f"gives {pair.relation.text}"
    after = f"{named(use.array)}, which uses them, is wrong: the pairs or dimensions are others"
    return Finding("permutation", pair, line_of(pair.array), f"{named(pair.array)} {what}, and {after}", use)


def _missing(found: Relation, line: str | None) -> str:
    assert found.over is not None
    return f"a {_REDUCTIONS[found.kind]} over {found.over.name} is missing" + (f" at {line}" if line else "")


def _is_equal_on_all(array: Recorded) -> bool:
    first, *others = array.arrays()
    return all(other is first or other.tobytes() == first.tobytes() for other in others)


def _shape(array: Recorded) -> str:
    return f"[{','.join(map(str, array.dims))}]"


__all__ = ["CERTAIN", "OTHERS", "Cause", "Finding", "named", "returned", "unexplained"]
