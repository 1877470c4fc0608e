"""Control flow of a random program: counted loops, branches, calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.fuzz.xla.exact_values import COMPLEX, Value, tuple_text
from tests.fuzz.xla.writer import Writer

Body = Callable[[Writer, int], None]  # appends so many instructions


def _inside(w: Writer, name: str, values: Sequence[Value], *, collectives: bool) -> Writer:
    """A computation with one parameter, a tuple of such values."""
    inner = Writer(w.module, collectives=collectives, depth=w.depth - 1)
    inner.lines.append(f"{name}.state = {tuple_text(list(values))} parameter(0)")
    inner.leaves(f"{name}.state", values)
    return inner


def _tuple(w: Writer, values: Sequence[Value]) -> Value:
    return Value(w.raw("packed", tuple_text(list(values)), "tuple", list(values)), "")


def _held(w: Writer, count: int) -> list[Value]:
    """Exact values to pass in; the computation keeps their bounds and steps."""
    found = [w.pick(lambda v: v.is_exact) or w.need("f32", w.dims()) for _ in range(count)]
    return [value if value.step <= 1 else replace(value, step=1.0) for value in found]


def _like(w: Writer, wanted: Value) -> Value:
    """A value that another one's place can take: of its shape, and within its bounds."""
    found = w.need(wanted.element, wanted.dims)
    if wanted.element in COMPLEX and (found.bound > wanted.bound or found.step < wanted.step):
        return w.constant(wanted.element, wanted.dims, range(1))
    return w.within(found, wanted.bound, wanted.step)


def loop(w: Writer, body: Body) -> None:
    """A counted loop; its counter is the same on all devices, so its body may hold collectives."""
    zero = w.constant("s32", (), range(1))
    trips = w.random.choice([0, 1, 2, 3, 5])
    counter = replace(zero, bound=float(trips))
    state = [counter, *_held(w, w.random.randint(1, 4))]
    name, condition = w.module.name("body"), w.module.name("condition")
    inner = _inside(w, name, [counter, *(replace(v, uniform=False) for v in state[1:])], collectives=w.collectives)
    leaves = list(inner.pool)
    body(inner, w.random.randint(0, 4))
    inner.lines.append(f"{name}.one = s32[] constant(1)")
    inner.lines.append(f"{name}.next = s32[] add({leaves[0].name}, {name}.one)")
    results = [f"{name}.next"]
    for leaf in leaves[1:]:
        kept = w.random.random() < 0.2
        results.append((leaf if kept else _like(inner, leaf)).name)
    shape = tuple_text(state)
    inner.body(name, f"tuple({', '.join(results)})", shape)
    w.module.computations[condition] = (
        f"{condition} {{\n  {condition}.state = {shape} parameter(0)\n"
        f"  {condition}.i = s32[] get-tuple-element({condition}.state), index=0\n"
        f"  {condition}.n = s32[] constant({trips})\n"
        f"  ROOT {condition}.r = pred[] compare({condition}.i, {condition}.n), direction=LT\n}}"
    )
    initial = _tuple(w, state)
    made = w.raw("loop", shape, "while", [initial], f"condition={condition}, body={name}")
    w.leaves(made, [counter, *(replace(v, uniform=False) for v in state[1:])])


def branch(w: Writer, body: Body) -> None:
    """A conditional; branches hold collectives if all devices take the same one."""
    chooser = w.pick(lambda v: v.uniform and v.element == "s32" and not v.dims) if w.random.random() < 0.6 else None
    together = chooser is not None
    by_predicate = not together and w.random.random() < 0.5
    if chooser is None:
        chooser = w.need("pred" if by_predicate else "s32", ())
    wanted = _held(w, w.random.randint(1, 3))
    names, operands = [], []
    for _ in range(2 if by_predicate else w.random.randint(1, 3)):
        taken = [*wanted, *_held(w, w.random.randint(0, 2))]
        name = w.module.name("branch")
        inside = [replace(v, uniform=False) for v in taken]
        inner = _inside(w, name, inside, collectives=w.collectives and together)
        body(inner, w.random.randint(0, 3))
        results = [_like(inner, value) for value in wanted]
        inner.body(name, f"tuple({', '.join(v.name for v in results)})", tuple_text(wanted))
        names.append(name)
        operands.append(_tuple(w, taken))
    if by_predicate:
        called = f"true_computation={names[0]}, false_computation={names[1]}"
    else:
        called = f"branch_computations={{{', '.join(names)}}}"
    made = w.raw("chosen", tuple_text(wanted), "conditional", [chooser, *operands], called)
    w.leaves(made, [replace(v, uniform=False) for v in wanted])


def call(w: Writer, body: Body) -> None:
    """A computation of its own, called once or twice."""
    taken = _held(w, w.random.randint(1, 3))
    name = w.module.name("callee")
    inner = _inside(w, name, [replace(v, uniform=False) for v in taken], collectives=w.collectives)
    body(inner, w.random.randint(1, 4))
    results = [_like(inner, value) for value in taken]
    inner.body(name, f"tuple({', '.join(v.name for v in results)})", tuple_text(taken))
    values = taken
    for _ in range(w.random.choice([1, 1, 2])):
        made = w.raw("called", tuple_text(taken), "call", [_tuple(w, values)], f"to_apply={name}")
        values = w.leaves(made, [replace(v, uniform=False) for v in taken])


MAKERS = (loop, loop, branch, call)
