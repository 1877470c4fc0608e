"""Collectives drawn by Hypothesis, each with the formula in NumPy that says what its members get.

The formulas are written from the definition of each collective and know nothing of the project's own answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distxla.ir.element_type import DATA_TYPES, ElementType
from distxla.ir.shape import Shape

Array = np.ndarray[Any, Any]
Arrays = list[Array]
Reducer = Callable[[Array, Array], Array]
Counts = tuple[int, int]  # replicas, partitions


@dataclass(frozen=True)
class Collective:
    """One instruction. attributes: its text behind the operands.  groups: by flattened ids, in order.

    formula: what each member of a group gets of what each of them gives; devices in no group get zeros.  inputs: one
    device's operands.  computations: that the attributes name.
    """

    opcode: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    attributes: str
    groups: list[list[int]]
    formula: Callable[[list[Arrays]], list[Arrays]]
    inputs: Callable[[np.random.Generator], Arrays]
    computations: str = ""
    always_tuple: bool = False  # of one result, too

    @property
    def is_tuple(self) -> bool:
        return self.always_tuple or len(self.results) > 1

    @property
    def result(self) -> str:
        return f"({', '.join(map(str, self.results))})" if self.is_tuple else str(self.results[0])

    def keeps_shapes(self) -> bool:
        return self.operands == self.results

    def everywhere(self, given: list[Arrays]) -> list[Arrays]:
        """What every device gets."""
        found = [[np.zeros(s.dims, s.dtype.dtype) for s in self.results] for _ in given]
        for group in self.groups:
            with np.errstate(all="ignore"):
                answers = self.formula([given[d] for d in group])
            for device, answer in zip(group, answers, strict=True):
                found[device] = answer
        return found


# --- reductions -----------------------------------------------------------------------------------------------------


def reductions_of(kind: ElementType) -> dict[str, tuple[str, Reducer]]:
    """HLO lines of a computation of a and b, by a name, and what it does to arrays: sums, and what is no sum."""
    t = f"{kind.name}[]"

    def simple(opcode: str, f: Reducer) -> tuple[str, Reducer]:
        return f"ROOT r = {t} {opcode}(a, b)", lambda x, y: np.asarray(f(x, y)).astype(kind.dtype)

    if kind.name == "pred":
        both = "n = pred[] not(b)\n  ROOT r = pred[] and(a, n)"
        return {
            "and": simple("and", np.logical_and),
            "xor": simple("xor", np.logical_xor),
            "a and not b": (both, lambda x, y: x & ~y),
        }
    found = {"sum": simple("add", np.add)}
    if kind.is_integer and kind.bits < 8:
        return {**found, "maximum": simple("maximum", np.maximum)}
    found["difference"] = simple("subtract", np.subtract)
    if kind.is_integer:
        three = f"three = {t} constant(3)\n  c = {t} multiply(b, three)\n  ROOT r = {t} subtract(a, c)"
        found["a - 3b"] = (three, lambda x, y: x - y * kind.dtype.type(3))
        found["and"] = simple("and", np.bitwise_and)
    elif kind.is_float:
        found["maximum"] = simple("maximum", _maximum)
        first = f"ROOT r = {t} copy(a)"
        found["the first"] = (first, lambda x, y: x)
        if kind.name in ("f16", "bf16"):  # rounded once, at the end
            wide = (
                f"x = f32[] convert(a)\n  y = f32[] convert(b)\n  h = f32[] constant(0.5)\n  z = f32[] multiply(y, h)\n"
                f"  s = f32[] add(x, z)\n  ROOT r = {t} convert(s)"
            )
            half = np.float32(0.5)
            found["a + b/2 in f32"] = (
                wide,
                lambda x, y: (x.astype(np.float32) + y.astype(np.float32) * half).astype(kind.dtype),
            )
    return found


def _maximum(x: Array, y: Array) -> Array:
    """Of two zeros the positive one, which NumPy does not promise."""
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


def reduction_text(kind: ElementType, lines: str, called: bool) -> str:
    """The computation `combine`; called: through a call of another one."""
    t = f"{kind.name}[]"
    head = f"a = {t} parameter(0)\n  b = {t} parameter(1)\n  "
    if not called:
        return f"combine {{\n  {head}{lines}\n}}\n"
    inner = f"inner {{\n  {head}{lines}\n}}\n"
    return f"{inner}combine {{\n  {head}ROOT c = {t} call(a, b), to_apply=inner\n}}\n"


def reduced(order: str, f: Reducer, arrays: Sequence[Array], chunks: Array) -> Array:
    """All members' arrays combined. chunks: for a ring, by element the member whose chunk it is."""
    if order == "tree":
        if len(arrays) == 1:
            return arrays[0]
        half = 1 << (len(arrays) - 1).bit_length() - 1
        return f(reduced(order, f, arrays[:half], chunks), reduced(order, f, arrays[half:], chunks))
    if order == "rank":
        return functools.reduce(f, arrays)
    result = arrays[0].copy()
    for c in range(len(arrays)):
        turned = [arrays[(c + 1 + k) % len(arrays)] for k in range(len(arrays))]
        result[chunks == c] = functools.reduce(f, turned)[chunks == c]
    return result


# --- values ---------------------------------------------------------------------------------------------------------


def values(rng: np.random.Generator, shape: Shape) -> Array:
    kind = shape.dtype
    if kind.name == "pred":
        return np.asarray(rng.random(shape.dims) < 0.5)
    if kind.is_integer:
        low, high = (-(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1)) if kind.is_signed else (0, 2**kind.bits)
        drawn = rng.integers(low, high, shape.dims, dtype=np.int64 if kind.is_signed else np.uint64)
        return np.asarray(drawn).astype(kind.dtype)
    real = rng.standard_normal(shape.dims) * 2.0 ** rng.integers(-3, 4, shape.dims)
    if kind.is_complex:
        return np.asarray(real + 1j * rng.standard_normal(shape.dims)).astype(kind.dtype)
    return np.asarray(np.abs(real) if kind.name == "f8e8m0fnu" else real).astype(kind.dtype)


# --- groups ---------------------------------------------------------------------------------------------------------


@st.composite
def listed(draw: st.DrawFn, ids: int, *, uneven: bool = False) -> tuple[str, list[list[int]]]:
    """Groups of range(ids): their text, and the ids; no text means everybody in one."""
    form = draw(st.sampled_from(["everybody", "listed", "iota"] + ["uneven"] * uneven))
    if form == "everybody" or ids == 1:
        return "replica_groups={}", [list(range(ids))]
    if form == "uneven":
        order = draw(st.permutations(range(ids)))
        cut = draw(st.integers(1, ids - 1))
        rows = [order[:cut], order[cut:]]
        return f"replica_groups={_braces(rows)}", [list(row) for row in rows]
    size = draw(st.sampled_from([s for s in range(1, ids + 1) if ids % s == 0]))
    if form == "iota":
        count = ids // size
        if draw(st.booleans()):
            rows = np.arange(ids).reshape(size, count).T.reshape(count, size).tolist()
            return f"replica_groups=[{count},{size}]<=[{size},{count}]T(1,0)", rows
        return f"replica_groups=[{count},{size}]<=[{ids}]", np.arange(ids).reshape(count, size).tolist()
    order = draw(st.permutations(range(ids)))
    rows = [list(order[i : i + size]) for i in range(0, ids, size)]
    return f"replica_groups={_braces(rows)}", rows


def _braces(rows: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"


@st.composite
def grouped(draw: st.DrawFn, counts: Counts, *, flat: bool, uneven: bool = False) -> tuple[str, list[list[int]]]:
    """A group mode: attributes, and the groups in flattened ids. flat: all-reduce, all-gather, reduce-scatter."""
    replicas, partitions = counts
    mode = draw(st.sampled_from(["replicas", "partitions" if not flat else "both", *["flattened"] * flat]))
    if mode == "replicas":
        text, rows = draw(listed(replicas, uneven=uneven))
        return text, [[r * partitions + p for r in row] for row in rows for p in range(partitions)]
    if mode == "both":
        text, rows = draw(listed(replicas, uneven=uneven))
        groups = [[r * partitions + p for r in row for p in range(partitions)] for row in rows]
        return f"channel_id=1, {text}", groups
    if mode == "partitions":
        text, rows = draw(listed(partitions))
        return f"channel_id=1, {text}", [[r * partitions + p for p in row] for row in rows for r in range(replicas)]
    text, rows = draw(listed(replicas * partitions, uneven=uneven))
    if text.endswith("{}"):
        text = f"replica_groups={_braces(rows)}"
    return f"channel_id=1, use_global_device_ids=true, {text}", rows


# --- collectives ----------------------------------------------------------------------------------------------------

dim_sizes = st.sampled_from([0, 1, 2, 3, 5, 17, 61])
large_dim_sizes = st.sampled_from([1, 2, 7, 4096, 30_011])


@st.composite
def shapes(draw: st.DrawFn, kind: ElementType, at_least: int = 0) -> Shape:
    if draw(st.integers(0, 9)) == 0:  # so large that members share the work, or that no mailbox holds it
        return Shape(kind, (draw(large_dim_sizes), draw(st.sampled_from([1, 3]))))
    return Shape(kind, tuple(draw(st.lists(dim_sizes, min_size=at_least, max_size=3))))


@st.composite
def collectives(draw: st.DrawFn, counts: Counts, kinds: Sequence[ElementType] = DATA_TYPES) -> Collective:
    kind = draw(st.sampled_from(list(kinds)))
    drawn = draw(
        st.sampled_from([reducing, reducing, gathering, exchanging, exchanging, broadcasting, permuting, ragged])
    )
    return draw(drawn(counts, kind))


@st.composite
def reducing(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    """all-reduce or reduce-scatter of one to three operands."""
    scatters = draw(st.booleans())
    attributes, groups = draw(grouped(counts, flat=True, uneven=not scatters))
    size = len(groups[0])
    part = draw(shapes(kind, 1 if scatters else 0))
    operands, results = [part], [part]
    dimension = 0
    if scatters:
        dimension = draw(st.integers(0, part.rank - 1))
        dims = [n * size if d == dimension else n for d, n in enumerate(part.dims)]
        operands = [Shape(kind, tuple(dims))]
    count = draw(st.integers(1, 3))
    operands, results = operands * count, results * count
    known = reductions_of(kind)
    lines, f = known[draw(st.sampled_from(sorted(known)))]
    order = draw(st.sampled_from(["rank", "rank", "tree", "ring"]))

    def formula(given: list[Arrays]) -> list[Arrays]:
        members = len(given)
        rows: list[Arrays] = [[] for _ in given]
        for arrays in zip(*given, strict=True):
            if scatters:
                along = np.indices(arrays[0].shape)[dimension]
                chunks = along // max(1, arrays[0].shape[dimension] // members)
                parts = np.split(reduced(order, f, arrays, chunks), members, dimension)
            else:
                flat = np.arange(arrays[0].size).reshape(arrays[0].shape)
                parts = [reduced(order, f, arrays, flat // max(1, -(-flat.size // members)))] * members
            for row, part_ in zip(rows, parts, strict=True):
                row.append(part_)
        return rows

    asked = "" if order == "rank" else f", reduction_order={order}"
    across = f", dimensions={{{dimension}}}" if scatters else ""
    return Collective(
        "reduce-scatter" if scatters else "all-reduce",
        tuple(operands),
        tuple(results),
        f"to_apply=combine, {attributes}{across}{asked}",
        groups,
        formula,
        lambda rng: [values(rng, s) for s in operands],
        reduction_text(kind, lines, draw(st.booleans())),
    )


@st.composite
def gathering(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    attributes, groups = draw(grouped(counts, flat=True))
    shape = draw(shapes(kind, 1))
    dimension, count = draw(st.integers(0, shape.rank - 1)), draw(st.integers(1, 3))
    whole = Shape(kind, tuple(n * len(groups[0]) if d == dimension else n for d, n in enumerate(shape.dims)))
    operands, results = [shape] * count, [whole] * count
    token = draw(st.sampled_from([None, None, 0, count]))  # where a scalar stands
    if token is not None:
        operands.insert(token, Shape(kind))
        results.insert(token, Shape(kind))

    def gathered(arrays: Arrays) -> Array:
        return np.concatenate(arrays, dimension) if arrays[0].ndim else arrays[0]

    def formula(given: list[Arrays]) -> list[Arrays]:
        return [[gathered(list(arrays)) for arrays in zip(*given, strict=True)]] * len(given)

    return Collective(
        "all-gather",
        tuple(operands),
        tuple(results),
        f"{attributes}, dimensions={{{dimension}}}",
        groups,
        formula,
        lambda rng: [values(rng, s) for s in operands],
    )


@st.composite
def exchanging(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    """all-to-all of one array, or of a tuple."""
    attributes, groups = draw(grouped(counts, flat=False))
    size, as_tuple = len(groups[0]), draw(st.booleans())
    shape = draw(shapes(kind, 1))
    if as_tuple:
        return Collective(
            "all-to-all",
            (shape,) * size,
            (shape,) * size,
            attributes,
            groups,
            lambda given: [[sent[i] for sent in given] for i in range(size)],
            lambda rng: [values(rng, shape) for _ in range(size)],
            always_tuple=True,
        )
    dimension = draw(st.integers(0, shape.rank - 1))
    whole = Shape(kind, tuple(n * size if d == dimension else n for d, n in enumerate(shape.dims)))
    return Collective(
        "all-to-all",
        (whole,),
        (whole,),
        f"{attributes}, dimensions={{{dimension}}}",
        groups,
        lambda given: [
            [np.concatenate([np.split(sent[0], size, dimension)[i] for sent in given], dimension)] for i in range(size)
        ],
        lambda rng: [values(rng, whole)],
    )


@st.composite
def broadcasting(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    """Some ids may be in no group."""
    attributes, groups = draw(grouped(counts, flat=False))
    shape = draw(shapes(kind))
    if attributes.endswith("}}") and "<=" not in attributes and draw(st.booleans()):
        ids = [[int(i) for i in row.split(",")] for row in attributes.split("{{")[1][:-2].split("},{")]
        kept = ids[: draw(st.integers(1, len(ids)))]
        attributes = attributes.split("replica_groups")[0] + f"replica_groups={_braces(kept)}"
        each = len(groups) // len(ids)
        groups = groups[: each * len(kept)]
    return Collective(
        "collective-broadcast",
        (shape,),
        (shape,),
        attributes,
        groups,
        lambda given: [given[0]] * len(given),
        lambda rng: [values(rng, shape)],
    )


@st.composite
def permuting(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    """One array or several; who is nobody's target gets zeros."""
    replicas, partitions = counts
    across = draw(st.booleans())  # partitions
    count = partitions if across else replicas
    targets = draw(st.permutations(range(count)))
    kept = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    pairs = [(s, t) for s, t, keep in zip(range(count), targets, kept, strict=True) if keep]
    given_shapes = tuple(draw(st.lists(shapes(kind), min_size=1, max_size=3)))
    groups = (
        [[r * partitions + p for p in range(partitions)] for r in range(replicas)]
        if across
        else [[r * partitions + p for r in range(replicas)] for p in range(partitions)]
    )

    def formula(given: list[Arrays]) -> list[Arrays]:
        found = [[np.zeros_like(a) for a in row] for row in given]
        for source, target in pairs:
            found[target] = given[source]
        return found

    channel = "channel_id=1, " * across
    return Collective(
        "collective-permute",
        given_shapes,
        given_shapes,
        f"{channel}source_target_pairs={_braces(pairs)}",
        groups,
        formula,
        lambda rng: [values(rng, s) for s in given_shapes],
    )


@st.composite
def ragged(draw: st.DrawFn, counts: Counts, kind: ElementType) -> Collective:
    attributes, groups = draw(grouped(counts, flat=False))
    size = len(groups[0])
    stretches, width = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    sent, kept = (Shape(kind, (draw(st.integers(1, 9)), width)) for _ in range(2))
    integers = draw(st.sampled_from([k for k in DATA_TYPES if k.is_integer and k.bits >= 8]))
    table = Shape(integers, (size, stretches) if draw(st.booleans()) else (size * stretches,))

    def inputs(rng: np.random.Generator) -> Arrays:
        sizes = rng.integers(0, min(sent.dims[0], kept.dims[0]) + 1, table.dims)
        starts, places = (rng.integers(0, s.dims[0] - sizes + 1, table.dims) for s in (sent, kept))
        tables = [np.asarray(t).astype(integers.dtype) for t in (starts, sizes, places, sizes)]
        return [values(rng, sent), values(rng, kept), *tables]

    def formula(given: list[Arrays]) -> list[Arrays]:
        found = [row[1].copy() for row in given]
        for data, _, *tables in given:
            for i, (start, count, place, _) in enumerate(zip(*(t.reshape(-1).tolist() for t in tables), strict=True)):
                found[i // stretches][place : place + count] = data[start : start + count]
        return [[array] for array in found]

    return Collective("ragged-all-to-all", (sent, kept, *[table] * 4), (kept,), attributes, groups, formula, inputs)
