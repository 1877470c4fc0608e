"""Instructions of a random program that combine elements: reductions, windows, products, sorts, scatters."""

from __future__ import annotations

import math
from dataclasses import replace

from distxla.ir.element_type import element_type
from distxla.ops.support.conversion import integer_range
from tests.fuzz.xla.exact_values import COMPLEX, FLOATS, Value, is_inexact_type, tuple_text
from tests.fuzz.xla.writer import Writer, is_possible, sized

COMBINERS = ("add", "add", "maximum", "minimum")


def _numbers(v: Value) -> bool:
    return v.is_exact and v.element != "pred"


def _array(w: Writer, least: int = 1) -> Value:
    return w.pick(lambda v: _numbers(v) and v.rank >= least and v.size) or w.need(
        w.random.choice([*FLOATS, "s32"]), w.dims(least)
    )


def _combiner(w: Writer, a: Value) -> tuple[str, Value]:
    """An opcode that combines elements of `a`, and its neutral element: XLA drops any other initial value where there
    is one element to combine."""
    opcode = "add" if a.element in COMPLEX else w.random.choice(COMBINERS)
    return opcode, _neutral(w, a.element, opcode)


def _neutral(w: Writer, element: str, opcode: str) -> Value:
    if opcode == "add":
        return w.constant(element, (), range(1))
    if element == "f8e4m3fn":  # it has no infinity
        text = "448"
    elif is_inexact_type(element):
        text = "inf"
    else:
        low, high = integer_range(element_type(element))
        text = str(high if opcode == "minimum" else low)
    sign = "-" if opcode == "maximum" and is_inexact_type(element) else ""
    name = w.module.name("neutral")
    w.lines.append(f"{name} = {element}[] constant({sign}{text})")
    return Value(name, element, uniform=True)


def _known(a: Value, opcode: str, count: int) -> Value:
    return sized(a, bound=count * a.bound if opcode == "add" else a.bound)


def reduce(w: Writer) -> None:
    a = _array(w)
    dimensions = sorted(w.random.sample(range(a.rank), w.random.randint(1, a.rank)))
    opcode, initial = _combiner(w, a)
    count = math.prod(a.dims[d] for d in dimensions)
    dims = tuple(dim for d, dim in enumerate(a.dims) if d not in dimensions)
    made = replace(_known(a, opcode, count), dims=dims)
    if is_possible(made):
        listed = ",".join(map(str, dimensions))
        call = w.module.scalar(a.element, opcode)
        w.add("v", made, "reduce", [a, initial], f"dimensions={{{listed}}}, to_apply={call}")


def reduce_predicates(w: Writer) -> None:
    a = w.pick(lambda v: v.element == "pred" and v.rank > 0)
    if a is None:
        return
    opcode = w.random.choice(["and", "or"])
    initial = Value(w.module.name("neutral"), "pred", uniform=True)
    w.lines.append(f"{initial.name} = pred[] constant({str(opcode == 'and').lower()})")
    d = w.random.randrange(a.rank)
    made = a.like("", (*a.dims[:d], *a.dims[d + 1 :]))
    call = w.module.scalar("pred", opcode)
    w.add("v", made, "reduce", [a, initial], f"dimensions={{{d}}}, to_apply={call}")


def argmax(w: Writer) -> None:
    """Two arrays at once: the largest element and where it is."""
    a = w.pick(lambda v: v.is_exact and v.rank > 0 and v.element in ("f32", "s32", "bf16", "f64"))
    if a is None:
        return
    e, d, name = a.element, w.random.randrange(a.rank), f"argmax_{a.element}"
    w.module.computations[name] = (
        f"{name} {{\n  {name}.a = {e}[] parameter(0)\n  {name}.i = s32[] parameter(1)\n"
        f"  {name}.b = {e}[] parameter(2)\n  {name}.j = s32[] parameter(3)\n"
        f"  {name}.g = pred[] compare({name}.a, {name}.b), direction=GT\n"
        f"  {name}.e = pred[] compare({name}.a, {name}.b), direction=EQ\n"
        f"  {name}.l = pred[] compare({name}.i, {name}.j), direction=LT\n"
        f"  {name}.f = pred[] and({name}.e, {name}.l)\n  {name}.c = pred[] or({name}.g, {name}.f)\n"
        f"  {name}.v = {e}[] select({name}.c, {name}.a, {name}.b)\n"
        f"  {name}.k = s32[] select({name}.c, {name}.i, {name}.j)\n"
        f"  ROOT {name}.r = ({e}[], s32[]) tuple({name}.v, {name}.k)\n}}"
    )
    places = w.add("place", Value("", "s32", a.dims, 8.0, uniform=True), "iota", [], f"iota_dimension={d}")
    least, none = _neutral(w, e, "maximum"), w.constant("s32", (), range(9, 10))
    dims = (*a.dims[:d], *a.dims[d + 1 :])
    results = [replace(a, dims=dims), Value("", "s32", dims, 9.0)]
    operands = [a, places, least, none]
    made = w.raw("both", tuple_text(results), "reduce", operands, f"dimensions={{{d}}}, to_apply={name}")
    w.leaves(made, [replace(r, uniform=False) for r in results])


def window(w: Writer) -> None:
    a = _array(w)
    opcode, initial = _combiner(w, a)
    sizes, strides, pads, dims = [], [], [], []
    for dim in a.dims:
        size, stride, low, high = w.random.randint(1, 3), w.random.randint(1, 2), *w.random.choices([0, 0, 1], k=2)
        if dim + low + high < size or size == 1:  # no window lies in the padding alone
            size, low, high = 1, 0, 0
        sizes.append(size)
        strides.append(stride)
        pads.append(f"{low}_{high}")
        dims.append((dim + low + high - size) // stride + 1)
    made = replace(_known(a, opcode, math.prod(sizes)), dims=tuple(dims))
    if is_possible(made):
        text = f"window={{size={'x'.join(map(str, sizes))} stride={'x'.join(map(str, strides))} pad={'x'.join(pads)}}}"
        w.add("v", made, "reduce-window", [a, initial], f"{text}, to_apply={w.module.scalar(a.element, opcode)}")


def select_and_scatter(w: Writer) -> None:
    """Each window's largest or smallest element, the first of equal ones, gets the window's source."""
    a = w.pick(lambda v: _numbers(v) and v.rank > 0 and v.element not in COMPLEX) or _array(w)
    if a.element in COMPLEX or not a.size:
        return
    sizes = [w.random.randint(1, min(3, dim)) for dim in a.dims]
    strides = [w.random.randint(1, 2) for _ in a.dims]
    dims = tuple((dim - size) // stride + 1 for dim, size, stride in zip(a.dims, sizes, strides, strict=True))
    source = w.need(a.element, dims)
    made = sized(a, bound=source.bound * math.prod(sizes), step=source.step)
    if is_possible(made):
        text = f"window={{size={'x'.join(map(str, sizes))} stride={'x'.join(map(str, strides))}}}"
        select, add = _comparison(w, a.element), w.module.scalar(a.element, "add")
        operands = [a, source, w.constant(a.element, (), range(1))]
        w.add("v", made, "select-and-scatter", operands, f"{text}, select={select}, scatter={add}")


def _comparison(w: Writer, element: str) -> str:
    """The name of a computation that compares two scalars."""
    direction = w.random.choice(["GE", "LE"])
    name = f"{direction.lower()}_{element}"
    w.module.computations[name] = (
        f"{name} {{\n  {name}.a = {element}[] parameter(0)\n  {name}.b = {element}[] parameter(1)\n"
        f"  ROOT {name}.r = pred[] compare({name}.a, {name}.b), direction={direction}\n}}"
    )
    return name


def dot(w: Writer) -> None:
    a = w.pick(lambda v: _numbers(v) and 1 <= v.rank <= 3) or w.need("f32", w.dims(1, 3))
    d = w.random.randrange(a.rank)
    batch = [k for k in range(a.rank) if k != d and w.random.random() < 0.3]
    other = (
        *(a.dims[k] for k in batch),
        a.dims[d],
        *([w.random.choice([1, 2, 3, 5])] if w.random.random() < 0.7 else []),
    )
    b = w.need(a.element, other)
    factor = 2 if a.element in COMPLEX else 1
    free = tuple(a.dims[k] for k in range(a.rank) if k != d and k not in batch)
    dims = (*(a.dims[k] for k in batch), *free, *other[len(batch) + 1 :])
    made = sized(a, dims=dims, bound=factor * a.dims[d] * a.bound * b.bound, step=a.step * b.step)
    if is_possible(made):
        places = list(range(len(batch)))
        text = f"lhs_contracting_dims={{{d}}}, rhs_contracting_dims={{{len(batch)}}}"
        if batch:
            text += f", lhs_batch_dims={{{','.join(map(str, batch))}}}, rhs_batch_dims={{{','.join(map(str, places))}}}"
        w.add("v", made, "dot", [a, b], text)


def convolution(w: Writer) -> None:
    element = w.random.choice(["f32", "f64"])
    dim, size = w.random.choice([3, 4, 5]), w.random.randint(1, 3)
    features, outs, stride, pad = *(w.random.randint(1, 2) for _ in range(3)), w.random.randint(0, 1)
    a, kernel = w.need(element, (2, dim, features)), w.need(element, (size, features, outs))
    length = (dim + 2 * pad - size) // stride + 1
    bound = size * features * a.bound * kernel.bound
    made = sized(a, dims=(2, length, outs), bound=bound, step=a.step * kernel.step)
    if is_possible(made):
        text = f"window={{size={size} stride={stride} pad={pad}_{pad}}}, dim_labels=b0f_0io->b0f"
        w.add("v", made, "convolution", [a, kernel], text)


def sort(w: Writer) -> None:
    """By one array, perhaps with another one that goes along."""
    a = w.pick(lambda v: v.is_exact and v.rank > 0 and v.element not in COMPLEX and v.element != "pred")
    if a is None:
        return
    d, direction = w.random.randrange(a.rank), w.random.choice(["LT", "GT"])
    along = w.need(w.random.choice(["s32", "f32", a.element]), a.dims) if w.random.random() < 0.5 else None
    name = w.module.name("order")
    lines = [f"{name}.a = {a.element}[] parameter(0)", f"{name}.b = {a.element}[] parameter(1)"]
    if along is not None:
        lines += [f"{name}.c = {along.element}[] parameter(2)", f"{name}.d = {along.element}[] parameter(3)"]
    lines.append(f"ROOT {name}.r = pred[] compare({name}.a, {name}.b), direction={direction}")
    w.module.computations[name] = f"{name} {{\n  " + "\n  ".join(lines) + "\n}"
    attributes = f"dimensions={{{d}}}, is_stable=true, to_apply={name}"
    if along is None:
        w.add("v", a, "sort", [a], attributes)
        return
    both = [a, along]
    w.leaves(w.raw("sorted", tuple_text(both), "sort", both, attributes), [replace(v, uniform=False) for v in both])


def scatter(w: Writer) -> None:
    """Rows into an array, at indices that may lie outside and repeat."""
    a = _array(w)
    d, count = w.random.randrange(a.rank), w.random.choice([1, 2, 3, 5])
    rows = w.need(w.random.choice(["s32", "s64"]), (count,))
    rest = tuple(dim for k, dim in enumerate(a.dims) if k != d)
    updates = w.need(a.element, (count, *rest))
    opcode = "add" if a.element in COMPLEX else w.random.choice(COMBINERS)
    bound = a.bound + count * updates.bound if opcode == "add" else max(a.bound, updates.bound)
    made = sized(a, bound=bound, step=min(a.step, updates.step))
    if is_possible(made):
        windows = ",".join(map(str, range(1, a.rank)))
        text = f"update_window_dims={{{windows}}}, inserted_window_dims={{{d}}}, scatter_dims_to_operand_dims={{{d}}}"
        text += f", index_vector_dim=1, to_apply={w.module.scalar(a.element, opcode)}"
        w.add("v", made, "scatter", [a, rows, updates], text)


def map_(w: Writer) -> None:
    a = _array(w)
    b = w.need(a.element, a.dims)
    made = sized(a, bound=a.bound + b.bound, step=min(a.step, b.step))
    if is_possible(made):
        dimensions = ",".join(map(str, range(a.rank)))
        call = w.module.scalar(a.element, "add")
        w.add("v", made, "map", [a, b], f"dimensions={{{dimensions}}}, to_apply={call}")


MAKERS = (
    *(
        reduce,
        reduce,
        reduce_predicates,
        argmax,
        window,
        select_and_scatter,
        dot,
        dot,
        convolution,
        sort,
        scatter,
        map_,
    ),
)
