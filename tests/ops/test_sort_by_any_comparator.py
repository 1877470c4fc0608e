"""Sorting by comparators that are no order: both executors give the same permutation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.ops.sorting.merge_sort import BOTH_ENDS, merge_sorted
from tests.ops.program_case import compiled, evaluated

Array = np.ndarray[Any, Any]


def merged(before: Array) -> list[int]:
    """Merge sort written down plainly: one comparison after the other. before: a table of any answers."""

    def front(first: list[int], second: list[int], count: int) -> tuple[list[int], int]:
        taken: list[int] = []
        i = j = 0
        while len(taken) < count:
            if i == len(first) or (j < len(second) and before[second[j], first[i]]):
                taken.append(second[j])
                j += 1
            else:
                taken.append(first[i])
                i += 1
        return taken, i

    def back(first: list[int], second: list[int]) -> tuple[list[int], int]:
        taken: list[int] = []
        i = j = len(first) - 1
        while len(taken) < len(first):
            if before[second[j], first[i]]:
                taken.append(first[i])
                i -= 1
            else:
                taken.append(second[j])
                j -= 1
        return taken[::-1], i + 1

    order, width = list(range(len(before))), 1
    while width < len(order):
        following: list[int] = []
        for start in range(0, len(order), 2 * width):
            first, second = order[start : start + width], order[start + width : start + 2 * width]
            if len(second) == width >= BOTH_ENDS:
                (left, used), (right, kept) = front(first, second, width), back(first, second)
                both = left + right if used == kept else front(first, second, 2 * width)[0]
            else:
                both = front(first, second, len(first) + len(second))[0]
            following += both
        order, width = following, 2 * width
    return order


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.5, 1.0]))
def test_merging_takes_the_same_steps(dim_size: int, seed: int, nonsense: float) -> None:
    """Of a table that is an order but for some answers, two lines at once."""
    generator = np.random.default_rng(seed)
    keys = generator.integers(0, dim_size, (2, dim_size))
    tables = keys[:, :, None] < keys[:, None, :]
    tables = np.where(generator.random(tables.shape) < nonsense, generator.random(tables.shape) < 0.5, tables)
    found = merge_sorted(2, dim_size, lambda rows, ours, theirs: tables[rows, ours, theirs])
    for line, table in enumerate(tables):
        assert found[line].tolist() == merged(table)
    if nonsense == 0:
        np.testing.assert_array_equal(found, np.argsort(keys, axis=1, kind="stable"))


@st.composite
def comparators(draw: st.DrawFn, element: str) -> str:
    """Lines of a comparator of an element and a number beside it: comparisons of anything, joined by anything."""
    lines = [f"{name} = {element}[] parameter({k})" for k, name in enumerate("ab")]
    lines += [f"{name} = u32[] parameter({k + 2})" for k, name in enumerate("cd")]
    values: dict[str, list[str]] = {element: ["a", "b"], "u32": ["c", "d"], "pred": []}

    def add(kind: str, expression: str) -> None:
        name = f"v{len(lines)}"
        lines.append(f"{name} = {kind}[] {expression}")
        values[kind].append(name)

    def pick(kind: str) -> str:
        return draw(st.sampled_from(values[kind]))

    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from([element, "u32"]))
        ops = ["add", "subtract", "maximum", *(["multiply", "xor"] if kind == "u32" else ["negate"])]
        op = draw(st.sampled_from(ops))
        add(kind, f"negate({pick(kind)})" if op == "negate" else f"{op}({pick(kind)}, {pick(kind)})")
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([element, element, "u32"]))
        direction = draw(st.sampled_from(["LT", "LT", "GT", "LE", "GE", "EQ", "NE"]))
        add("pred", f"compare({pick(kind)}, {pick(kind)}), direction={direction}")
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.sampled_from(["and", "or", "not", "select"]))
        names = [pick("pred") for _ in range({"not": 1, "select": 3}.get(op, 2))]
        add("pred", f"{op}({', '.join(names)})")
    lines[-1] = f"ROOT {lines[-1]}"
    return "before {\n  " + "\n  ".join(lines) + "\n}"


def program(comparator: str, element: str, sizes: tuple[int, ...]) -> str:
    """Lines of each size, two of them at once, sorted together with the places that they come from."""
    lines = [comparator, "ENTRY main {"]
    for k, n in enumerate(sizes):
        lines += [
            f"  x{k} = {element}[2,{n}] parameter({k})",
            f"  i{k} = u32[2,{n}] iota(), iota_dimension=1",
            f"  s{k} = ({element}[2,{n}], u32[2,{n}]) sort(x{k}, i{k}), dimensions={{1}}, to_apply=before",
        ]
    shapes = ", ".join(f"({element}[2,{n}], u32[2,{n}])" for n in sizes)
    lines += [f"  ROOT r = ({shapes}) tuple({', '.join(f's{k}' for k in range(len(sizes)))})", "}"]
    return "\n".join(lines)


def check(text: str, arguments: list[Array]) -> None:
    wanted, got = evaluated(text, *arguments), compiled(text, *arguments)
    for k, x in enumerate(arguments):
        for outs in (wanted, got):
            values, places = outs[2 * k : 2 * k + 2]
            np.testing.assert_array_equal(np.sort(places, axis=1), np.broadcast_to(np.arange(x.shape[1]), x.shape))
            assert values.tobytes() == np.take_along_axis(x, places.astype(np.int64), axis=1).tobytes()
        np.testing.assert_array_equal(wanted[2 * k + 1], got[2 * k + 1])


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(["f32", "u32", "bf16"]), st.integers(0, 2**32))
def test_both_executors_agree(data: st.DataObject, element: str, seed: int) -> None:
    comparator = data.draw(comparators(element))
    generator = np.random.default_rng(seed)
    sizes = (7, int(generator.integers(33, 64)), int(generator.integers(65, 300)))
    text = program(comparator, element, sizes)
    check(text, [drawn(element, n, generator) for n in sizes])


def drawn(element: str, dim_size: int, generator: np.random.Generator) -> Array:
    if element == "u32":
        return generator.integers(0, dim_size, (2, dim_size)).astype(np.uint32)
    from ml_dtypes import bfloat16

    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0], np.float32)
    values = generator.normal(size=(2, dim_size)).astype(np.float32)
    mixed = np.where(generator.random((2, dim_size)) < 0.3, generator.choice(special, (2, dim_size)), values)
    return mixed.astype(bfloat16) if element == "bf16" else mixed


AB = "a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  c = u32[] parameter(2)\n  d = u32[] parameter(3)\n  "


@pytest.mark.sampled(one_in=6, first=("body8",))
@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = pred[] compare(a, b), direction=LT",
        "ROOT r = pred[] compare(a, b), direction=GT",
        "ROOT r = pred[] compare(a, b), direction=GE",
        "ROOT r = pred[] compare(a, b), direction=EQ",
        "ROOT r = pred[] compare(c, c), direction=EQ",
        "ROOT r = pred[] compare(d, c), direction=EQ",
        # keys that show when the comparator has been simplified: by them NaNs would come last
        "l = pred[] compare(a, b), direction=LT\n  n = pred[] not(l)\n  ROOT r = pred[] not(n)",
        "l = pred[] compare(a, b), direction=LT\n  t = pred[] constant(true)\n  ROOT r = pred[] and(t, l)",
        # several keys, of which NaNs may be one
        "l = pred[] compare(a, b), direction=GT\n  e = pred[] compare(a, b), direction=EQ\n"
        "  g = pred[] compare(c, d), direction=GT\n  n = pred[] and(e, g)\n  ROOT r = pred[] or(l, n)",
    ],
)
def test_comparators_that_people_write(body: str) -> None:
    generator = np.random.default_rng(7)
    sizes = (3, 257)
    check(program(f"before {{\n  {AB}{body}\n}}", "f32", sizes), [drawn("f32", n, generator) for n in sizes])


DYNAMIC = """HloModule dynamic
before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=DIRECTION
}
ENTRY main {
  x = f32[300] parameter(0)
  n = s32[] parameter(1)
  y = f32[<=300] set-dimension-size(x, n), dimensions={0}
  ROOT s = f32[<=300] sort(y), dimensions={0}, to_apply=before
}
"""


@pytest.mark.sampled(one_in=12, first=("200-LT",))
@pytest.mark.parametrize("direction", ["LT", "GE"])
@pytest.mark.parametrize("count", [0, 1, 70, 200, 300])
def test_what_a_dynamic_dimension_lacks_takes_part_in_no_order(direction: str, count: int) -> None:
    text = DYNAMIC.replace("DIRECTION", direction)
    x = drawn("f32", 300, np.random.default_rng(3))[0]
    wanted, got = (run(text, x, np.int32(count))[0] for run in (evaluated, compiled))
    assert wanted.tobytes() == got[:count].tobytes()
    assert np.sort(wanted.view(np.uint32)).tolist() == np.sort(x[:count].view(np.uint32)).tolist()
