"""collective-permute with slice_sizes: slices of one array into places of another, against loops over NumPy slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import VerificationError
from distxla.ir.element_type import S4
from distxla.text.parser import parse_module
from tests.collectives.executors import EXECUTORS, run_module

Array = np.ndarray[Any, Any]

ONE = """HloModule one
ENTRY main {
  input = f32[6,4] parameter(0)
  output = f32[5,7] parameter(1)
  a = s32[] parameter(2)
  b = s32[] parameter(3)
  zero = s32[] constant(0)
  from = (s32[], s32[]) tuple(a, zero)
  to = (s32[], s32[]) tuple(b, a)
  ROOT r = f32[5,7] collective-permute(input, output, from, to), PAIRS, slice_sizes={{2,3}}
}
"""


def arguments(devices: int, output: tuple[int, ...] = (5, 7)) -> list[list[Array]]:
    rng = np.random.default_rng(devices)
    return [
        [
            rng.normal(size=(6, 4)).astype(np.float32),
            rng.normal(size=output).astype(np.float32),
            np.int32(rng.integers(-2, 7)),
            np.int32(rng.integers(-2, 7)),
        ]
        for _ in range(devices)
    ]


def clamp(start: int, dim_size: int, size: int) -> int:
    return min(max(int(start), 0), dim_size - size)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("pairs", "replicas", "partitions"),
    [
        ("source_target_pairs={{0,1},{1,2},{2,0}}", 4, 1),
        ("source_target_pairs={{1,0}}, channel_id=3", 2, 3),
        ("source_target_pairs={{0,0},{1,1}}", 2, 2),
        ("source_target_pairs={}", 2, 1),
    ],
)
def test_one_slice(pairs: str, replicas: int, partitions: int, executor: str) -> None:
    given = arguments(replicas * partitions)
    outs = run_module(executor, ONE.replace("PAIRS", pairs), given, replicas, partitions)
    listed = [pair.strip("{}").split(",") for pair in pairs.split("={")[1].split("}}")[0].split("},{") if "," in pair]
    expected = [row[1].copy() for row in given]
    for s, t in ((int(a), int(b)) for a, b in listed):
        for other in range(replicas if "channel" in pairs else partitions):
            if "channel" in pairs:
                source, target = other * partitions + s, other * partitions + t
            else:
                source, target = s * partitions + other, t * partitions + other
            at = clamp(given[source][2], 6, 2)
            down, right = clamp(given[target][3], 5, 2), clamp(given[target][2], 7, 3)
            expected[target][down : down + 2, right : right + 3] = given[source][0][at : at + 2, 0:3]
    for found, wanted in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(found[0], wanted)


RING = """HloModule both_ways
ENTRY main {
  input = u8[4,3] parameter(0)
  output = u8[6,3] parameter(1)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  four = s32[] constant(4)
  first = (s32[], s32[]) tuple(zero, zero)
  second = (s32[], s32[]) tuple(one, zero)
  third = (s32[], s32[]) tuple(four, zero)
  from = ((s32[], s32[]), (s32[], s32[])) tuple(first, second)
  to = ((s32[], s32[]), (s32[], s32[])) tuple(third, second)
  ROOT r = u8[6,3] collective-permute(input, output, from, to), PAIRS, slice_sizes={{1,3},{2,3}}
}
"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("both_ways", [False, True])
def test_two_slices_along_the_same_pairs_or_in_two_directions(both_ways: bool, executor: str) -> None:
    forward = [(0, 1), (1, 2), (2, 0)]
    backward = [(0, 2), (1, 0), (2, 1)] if both_ways else forward
    listed = forward + backward if both_ways else forward
    text = ",".join(f"{{{s},{t}}}" for s, t in listed)
    rng = np.random.default_rng(3)
    given = [[rng.integers(0, 255, (4, 3), np.uint8), rng.integers(0, 255, (6, 3), np.uint8)] for _ in range(3)]
    outs = run_module(executor, RING.replace("PAIRS", f"source_target_pairs={{{text}}}"), given, 3)
    expected = [row[1].copy() for row in given]
    for s, t in forward:
        expected[t][4:5] = given[s][0][0:1]
    for s, t in backward:
        expected[t][1:3] = given[s][0][1:3]
    for found, wanted in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(found[0], wanted)


TUPLES = """HloModule tuples
ENTRY main {
  a = f64[4,2] parameter(0)
  b = s4[8] parameter(1)
  c = f64[3,2] parameter(2)
  d = s4[9] parameter(3)
  input = (f64[4,2], s4[8]) tuple(a, b)
  output = (f64[3,2], s4[9]) tuple(c, d)
  zero = s32[] constant(0)
  two = s32[] constant(2)
  six = s32[] constant(6)
  a0 = (s32[], s32[]) tuple(zero, zero)
  a1 = (s32[], s32[]) tuple(two, zero)
  b0 = (s32[]) tuple(zero)
  b1 = (s32[]) tuple(six)
  fa = ((s32[], s32[]), (s32[], s32[])) tuple(a0, a1)
  fb = ((s32[]), (s32[])) tuple(b1, b0)
  from = (((s32[], s32[]), (s32[], s32[])), ((s32[]), (s32[]))) tuple(fa, fb)
  START
}
"""
FORMS = {
    "synchronous": "ROOT r = (f64[3,2], s4[9]) collective-permute(input, output, from, from), ATTRIBUTES",
    "asynchronous": """s = ((f64[4,2], s4[8]), (f64[3,2], s4[9]), u32[], u32[]) collective-permute-start(input, output,
    from, from), ATTRIBUTES
  ROOT r = (f64[3,2], s4[9]) collective-permute-done(s)""",
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("form", FORMS)
def test_tuples_of_arrays(form: str, executor: str) -> None:
    attributes = "source_target_pairs={{0,1},{1,0},{1,0},{0,1}}, slice_sizes={{1,2},{1,1},{2},{3}}"
    rng = np.random.default_rng(4)
    given: list[list[Array]] = []
    for _ in range(2):
        arrays: list[Array] = [rng.normal(size=(4, 2)), rng.integers(-8, 8, 8, np.int8)]
        arrays += [rng.normal(size=(3, 2)), rng.integers(-8, 8, 9, np.int8)]
        given.append(arrays)
    for row in given:
        row[1], row[3] = row[1].astype(S4.dtype), row[3].astype(S4.dtype)
    outs = run_module(executor, TUPLES.replace("START", FORMS[form]).replace("ATTRIBUTES", attributes), given, 2)
    for t in range(2):
        s = 1 - t
        first, second = given[t][2].copy(), given[t][3].copy()
        first[0:1] = given[s][0][0:1]
        second[6:8] = given[s][1][6:8]
        first[2:3, 0:1] = given[s][0][2:3, 0:1]
        second[0:3] = given[s][1][0:3]
        np.testing.assert_array_equal(outs[t][0], first)
        np.testing.assert_array_equal(outs[t][1], second)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("C1", ("{{0,1},{1,2},{2,0}}", "{{0,1},{0,2},{2,0}}")),
        ("C1", ("{{0,1},{1,2},{2,0}}", "{{0,1},{1,2},{2,1},{1,0},{2,2}}")),
        ("C2", ("{{0,1},{1,2},{2,0}}", "{{0,1},{1,3},{2,0}}")),
        ("C3", ("(input, output, from, to)", "(input, output, from)")),
        ("C6", ("output = u8[6,3] parameter(1)", "output = s8[6,3] parameter(1)")),
        ("C7", ("(input, output, from, to)", "(input, output, from, first)")),
        ("C8", ("slice_sizes={{1,3},{2,3}}", "slice_sizes={{1,3},{5,3}}")),
        ("C8", ("slice_sizes={{1,3},{2,3}}", "slice_sizes={{1,3},{2}}")),
    ],
)
def test_what_is_wrong_is_named(rule: str, change: tuple[str, str]) -> None:
    text = RING.replace("PAIRS", "source_target_pairs={{0,1},{1,2},{2,0}}").replace(*change)
    with pytest.raises(VerificationError, match=rf"collective-permute\.{rule}: ") as found:
        verify_module(parse_module(text), 3, 1)
    assert found.value.location is not None
