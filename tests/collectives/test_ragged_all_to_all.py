"""ragged-all-to-all against loops over NumPy slices, as JAX's documentation describes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distxla.collectives.protocols import control_block
from distxla.compiler.compile import compile_module
from distxla.errors import ExecutionError
from distxla.ir.counts import Counts
from distxla.program.abi import Status
from distxla.text.parser import parse_module
from tests.collectives.executors import EXECUTORS, run_module
from tests.compiler.runner import Devices
from tests.samples import examples

Array = np.ndarray[Any, Any]

TEXT = """HloModule ragged
ENTRY main {
  input = KIND[A] parameter(0)
  output = KIND[B] parameter(1)
  input_offsets = TABLE parameter(2)
  send_sizes = TABLE parameter(3)
  output_offsets = TABLE parameter(4)
  recv_sizes = TABLE parameter(5)
  ROOT r = KIND[B] ragged-all-to-all(input, output, input_offsets, send_sizes, output_offsets, recv_sizes), GROUPS
}
"""


def text(kind: str, sent: tuple[int, ...], kept: tuple[int, ...], table: str, groups: str) -> str:
    found = TEXT.replace("KIND", kind).replace("TABLE", table).replace("GROUPS", groups)
    return found.replace("[A]", f"[{','.join(map(str, sent))}]").replace("[B]", f"[{','.join(map(str, kept))}]")


def formula(rows: list[list[Array]], group: list[int]) -> dict[int, Array]:
    """By device what the members of one group get, sender after sender, entry after entry."""
    results = {d: rows[d][1].copy() for d in group}
    for sender in group:
        sent, _, starts, sizes, targets, _ = rows[sender]
        each = starts.size // len(group)
        for i, (start, size, there) in enumerate(zip(starts.ravel(), sizes.ravel(), targets.ravel(), strict=True)):
            for row in range(int(size)):
                results[group[i // each]][int(there) + row] = sent[int(start) + row]
    return results


def check(module: str, rows: list[list[Array]], groups: list[list[int]], counts: tuple[int, int]) -> None:
    for executor in EXECUTORS:
        outs = run_module(executor, module, rows, *counts)
        for group in groups:
            for device, expected in formula(rows, group).items():
                np.testing.assert_array_equal(outs[device][0], expected, err_msg=f"{executor}, device {device}")


def drawn(
    rng: np.random.Generator, shapes: tuple[tuple[int, ...], tuple[int, ...]], table: tuple[int, ...], kind: str
) -> list[Array]:
    """Operands of one device with entries that fit; now and then one of size 0 with offsets that don't."""
    sent, kept = shapes
    rows: list[Array] = [
        rng.integers(0, 100, sent).astype(np.float32),
        rng.integers(-100, 0, kept).astype(np.float32),
    ]
    sizes = rng.integers(0, min(sent[0], kept[0]) + 1, table)
    starts, targets = (rng.integers(0, dim_size - sizes + 1, table) for dim_size in (sent[0], kept[0]))
    starts = np.where((sizes == 0) & (rng.random(table) < 0.5), 120, starts)
    return [*rows, *(t.astype(kind) for t in (starts, sizes, targets, sizes))]


NAMES = {"s8": "int8", "u8": "uint8", "s32": "int32", "u32": "uint32", "s64": "int64", "u64": "uint64"}


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("table", [(3,), (6,), (3, 4)], ids=str)
def test_tables_of_every_form_and_type(kind: str, table: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    shapes = ((9, 2), (7, 2))
    rows = [drawn(rng, shapes, table, NAMES[kind]) for _ in range(3)]
    check(text("f32", *shapes, f"{kind}[{','.join(map(str, table))}]", "replica_groups={}"), rows, [[0, 1, 2]], (3, 1))


MODES = [
    ("replica_groups={{1,0},{2,3}}", (4, 1), [[1, 0], [2, 3]]),
    ("replica_groups={{1,0}}", (2, 2), [[2, 0], [3, 1]]),
    ("replica_groups={{1,0}}, channel_id=4", (2, 2), [[1, 0], [3, 2]]),
    ("replica_groups=[2,2]<=[2,2]T(1,0)", (4, 1), [[0, 2], [1, 3]]),
    ("replica_groups={{0},{1}}", (2, 1), [[0], [1]]),
]


@pytest.mark.parametrize(("groups", "counts", "expected"), MODES, ids=[mode[0] for mode in MODES])
def test_group_modes_and_orders(groups: str, counts: tuple[int, int], expected: list[list[int]]) -> None:
    rng = np.random.default_rng(8)
    shapes, table = ((5, 3), (6, 3)), (2 * len(expected[0]),)
    rows = [drawn(rng, shapes, table, "int32") for _ in range(counts[0] * counts[1])]
    check(text("f32", *shapes, f"s32[{table[0]}]", groups), rows, expected, counts)


def test_the_example_of_the_documentation() -> None:
    tables = [([0, 1], [1, 2], [0, 0], [1, 1]), ([0, 1], [1, 1], [1, 2], [2, 1])]
    data = [[1, 2, 2], [3, 4, 0]]
    rows = [
        [np.array(data[d], np.float32), np.zeros(4, np.float32), *(np.array(t, np.int32) for t in tables[d])]
        for d in range(2)
    ]
    module = text("f32", (3,), (4,), "s32[2]", "replica_groups={{0,1}}")
    for executor in EXECUTORS:
        outs = run_module(executor, module, rows, 2)
        assert [row[0].tolist() for row in outs] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def test_large_arrays_whose_work_is_shared() -> None:
    rng = np.random.default_rng(9)
    shapes = ((3000, 100), (2500, 100))
    rows = [drawn(rng, shapes, (12,), "int64") for _ in range(4)]
    check(text("f32", *shapes, "s64[12]", "replica_groups={}"), rows, [[0, 1, 2, 3]], (4, 1))


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_random_tables(devices: int, stretches: int, sent: int, kept: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes, table = ((sent, 2), (kept, 2)), (devices * stretches,)
    rows = [drawn(rng, shapes, table, "int32") for _ in range(devices)]
    check(text("f32", *shapes, f"s32[{table[0]}]", "replica_groups={}"), rows, [list(range(devices))], (devices, 1))


BAD = [
    ("s32", 2, [0, 6]),  # an input offset beyond the input
    ("s32", 2, [0, -1]),
    ("s32", 3, [1, 6]),  # more rows than the input has
    ("s32", 3, [1, -1]),
    ("s32", 4, [0, 4]),  # an output offset beyond the output
    ("s32", 4, [0, -2]),
    ("u64", 2, [0, 2**64 - 1]),
    ("s64", 2, [0, 2**63 - 1]),
    ("s64", 3, [0, 2**63 - 1]),
    ("s64", 3, [0, -(2**63)]),
]


@pytest.mark.parametrize(("kind", "leaf", "entries"), BAD, ids=str)
def test_the_reference_refuses_what_reaches_beyond_an_array(kind: str, leaf: int, entries: list[int]) -> None:
    rows = _with(kind, leaf, entries)
    with pytest.raises(ExecutionError, match="entry 1 of its offsets and sizes reaches beyond") as found:
        run_module("reference", text("f32", (5,), (4,), f"{kind}[2]", "replica_groups={}"), rows, 2)
    assert found.value.location is not None


def _with(kind: str, leaf: int, entries: list[int]) -> list[list[Array]]:
    """Arguments of two devices; the second one's entries of one table are replaced."""
    dtype = NAMES[kind]
    rows: list[list[Array]] = []
    for device in range(2):
        tables = [np.array(t, dtype) for t in ([0, 1], [1, 2], [0, 1], [1, 2])]
        if device:
            tables[leaf - 2] = np.array(entries, dtype)
        rows.append([np.arange(5, dtype=np.float32), np.zeros(4, np.float32), *tables])
    return rows


@pytest.mark.parametrize(("kind", "leaf", "entries"), BAD, ids=str)
def test_compiled_programs_refuse_it_before_they_touch_anything(kind: str, leaf: int, entries: list[int]) -> None:
    module = parse_module(text("f32", (5,), (4,), f"{kind}[2]", "replica_groups={}"))
    devices = Devices(compile_module(module, Counts(1, 1)))
    devices.store([_with(kind, leaf, entries)[1]])
    with pytest.raises(AssertionError, match=f"status of each device: .{Status.OUT_OF_RANGE.value}"):
        devices.run()
    record = control_block.record_offset(0)
    assert devices.control[record + control_block.R_DETAIL] == 1
    devices.close()
