"""Instructions of a random program that move elements without looking at them."""

from __future__ import annotations

import math

from tests.fuzz.xla.exact_values import Value
from tests.fuzz.xla.writer import MOST_ELEMENTS, Writer, is_possible, sized


def _listed(numbers: list[int] | tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _array(w: Writer, least: int = 1) -> Value:
    return w.pick(lambda v: v.rank >= least) or w.need("f32", w.dims(least))


def transpose(w: Writer) -> None:
    a = _array(w)
    order = w.random.sample(range(a.rank), a.rank)
    w.add("v", a.like("", tuple(a.dims[d] for d in order)), "transpose", [a], f"dimensions={_listed(order)}")


def reshape(w: Writer) -> None:
    a = w.some()
    left, dims = a.size, []
    while left > 1 and len(dims) < 3:
        dim = w.random.choice([n for n in range(1, left + 1) if left % n == 0])
        dims.append(dim)
        left //= dim
    dims += [left] if left > 1 or w.random.random() < 0.3 else []
    w.random.shuffle(dims)
    w.add("v", a.like("", tuple(dims)), "reshape", [a])


def broadcast(w: Writer) -> None:
    a = w.some(lambda v: v.rank < 3)
    dims, kept = [], []
    for dim in a.dims:
        if w.random.random() < 0.4:
            dims.append(w.random.choice([1, 2, 3]))
        kept.append(len(dims))
        dims.append(dim)
    if w.random.random() < 0.6:
        dims.append(w.random.choice([1, 2, 3, 4]))
    if math.prod(dims) <= MOST_ELEMENTS and len(dims) <= 4:
        w.add("v", a.like("", tuple(dims)), "broadcast", [a], f"dimensions={_listed(kept)}")


def slice_(w: Writer) -> None:
    a = _array(w)
    dims, parts = [], []
    for dim in a.dims:
        start = w.random.randrange(dim + 1) if dim < 2 else w.random.randrange(dim)
        limit, stride = w.random.randint(start, dim), w.random.choice([1, 1, 2])
        if limit == start:
            start, limit = 0, dim
        parts.append(f"[{start}:{limit}:{stride}]")
        dims.append(-(-(limit - start) // stride))
    w.add("v", a.like("", tuple(dims)), "slice", [a], f"slice={{{', '.join(parts)}}}")


def reverse(w: Writer) -> None:
    a = _array(w)
    dimensions = sorted(w.random.sample(range(a.rank), w.random.randint(1, a.rank)))
    w.add("v", a, "reverse", [a], f"dimensions={_listed(dimensions)}")


def concatenate(w: Writer) -> None:
    a = _array(w)
    d = w.random.randrange(a.rank)
    parts = [a]
    for _ in range(w.random.randint(1, 2)):
        dim = w.random.choice([1, 2, a.dims[d]])
        parts.append(w.need(a.element, (*a.dims[:d], dim, *a.dims[d + 1 :])))
    dims = (*a.dims[:d], sum(p.dims[d] for p in parts), *a.dims[d + 1 :])
    made = sized(a, dims=dims, bound=max(p.bound for p in parts), step=min(p.step for p in parts))
    if is_possible(made) or (not a.is_exact and made.size <= MOST_ELEMENTS):
        w.add("v", made, "concatenate", parts, f"dimensions={{{d}}}")


def pad(w: Writer) -> None:
    a = _array(w)
    value = w.need(a.element, ())
    dims, parts = [], []
    for dim in a.dims:
        low, high, interior = w.random.randint(-1, 2), w.random.randint(-1, 2), w.random.choice([0, 0, 1])
        spread = dim + max(0, dim - 1) * interior
        if spread + low + high < 1:
            low = high = 0
        dims.append(spread + low + high)
        parts.append(f"{low}_{high}_{interior}")
    made = sized(a, dims=tuple(dims), bound=max(a.bound, value.bound), step=min(a.step, value.step))
    if is_possible(made) or (not a.is_exact and made.size <= MOST_ELEMENTS):
        w.add("v", made, "pad", [a, value], f"padding={'x'.join(parts)}")


def dynamic_slice(w: Writer) -> None:
    a = _array(w)
    sizes = tuple(w.random.randint(1, dim) for dim in a.dims)
    first = w.index()
    starts = [first, *(w.need(first.element, ()) for _ in a.dims[1:])]
    w.add("v", a.like("", sizes), "dynamic-slice", [a, *starts], f"dynamic_slice_sizes={_listed(sizes)}")


def dynamic_update_slice(w: Writer) -> None:
    a = _array(w)
    update = w.need(a.element, tuple(w.random.randint(1, dim) for dim in a.dims))
    first = w.index()
    starts = [first, *(w.need(first.element, ()) for _ in a.dims[1:])]
    made = sized(a, bound=max(a.bound, update.bound), step=min(a.step, update.step))
    if is_possible(made) or not a.is_exact:
        w.add("v", made, "dynamic-update-slice", [a, update, *starts])


def gather(w: Writer) -> None:
    """Slices along one dimension, at indices that may lie outside."""
    a = _array(w)
    d, count = w.random.randrange(a.rank), w.random.choice([1, 2, 3, 5])
    rows = w.need(w.random.choice(["s32", "u32", "s64"]), (count,))
    sizes = [1 if k == d else dim for k, dim in enumerate(a.dims)]
    rest = tuple(dim for k, dim in enumerate(a.dims) if k != d)
    made = a.like("", (count, *rest))
    if made.size <= MOST_ELEMENTS:
        attributes = f"offset_dims={_listed(list(range(1, a.rank)))}, collapsed_slice_dims={{{d}}}, "
        attributes += f"start_index_map={{{d}}}, index_vector_dim=1, slice_sizes={_listed(sizes)}"
        w.add("v", made, "gather", [a, rows], attributes)


def copy(w: Writer) -> None:
    a = w.some()
    w.add("v", a, "copy", [a])


def barrier(w: Writer) -> None:
    values = [w.some() for _ in range(w.random.randint(1, 3))]
    if len(values) == 1:
        w.add("v", values[0], "opt-barrier", values)
        return
    shape = f"({', '.join(v.shape for v in values)})"
    packed = Value(w.raw("packed", shape, "tuple", values), "")
    w.leaves(w.raw("held", shape, "opt-barrier", [packed]), values)


MAKERS = (
    *(transpose, reshape, broadcast, slice_, reverse, concatenate, pad, dynamic_slice, dynamic_update_slice),
    *(gather, barrier, copy),
)
