"""The kit finds faults: an executor that is right but for one thing, and a case that shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.conformance.in_process import Arrays, ReadsFiles, outcomes, replaced


@dataclass(frozen=True)
class Fault:
    """found_by: cases that must not be the same.  not_by: cases that the fault does not touch, which must be."""

    name: str
    executor: ReadsFiles
    found_by: tuple[str, ...]
    not_by: tuple[str, ...] = ("collective-broadcast/pairs",)


def each(change: Callable[[Any], Any]) -> Callable[[Arrays, Arrays], Arrays]:
    """A change of every result."""
    return lambda outs, args: [[change(array) for array in row] for row in outs]


def _reversed_pairs(text: str) -> str:
    def swap(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"\{(\d+),(\d+)\}", r"{\2,\1}", found[2])

    return re.sub(r"(source_target_pairs=\"?)(\{[{}\d,]*\})", swap, text)


def _sorted_members(text: str) -> str:
    def ordered(found: re.Match[str]) -> str:
        return "{" + ",".join(sorted(found[0][1:-1].split(","))) + "}"

    return re.sub(r"replica_groups=\S*", lambda groups: re.sub(r"\{[\d,]+\}", ordered, groups[0]), text)


def _partition_by_partition(text: str) -> str:
    """Flattened ids as partition * replicas + replica."""
    replicas, partitions = (int(found) for found in re.findall(r"(?:replica_count|num_partitions)=(\d+)", text))

    def renumbered(found: re.Match[str]) -> str:
        partition, replica = divmod(int(found[0]), replicas)
        return str(replica * partitions + partition)

    def line(found: re.Match[str]) -> str:
        return f"replica_groups={re.sub('[0-9]+', renumbered, found[1])}{found[2]}"

    return re.sub(r"replica_groups=(\{\S*\})(, use_global_device_ids)", line, text)


def _own_value_for_zeros(outs: Arrays, args: Arrays) -> Arrays:
    return [
        [out if np.any(out != 0) else arg for out, arg in zip(row, given, strict=True)]
        for row, given in zip(outs, args, strict=True)
    ]


def _wide(args: Arrays) -> Arrays:
    return [[array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array for array in row] for row in args]


def _truncated(array: Any) -> Any:
    """The upper half of an f32: rounded towards zero."""
    if array.dtype != np.float32:
        return array
    return (array.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)


def _wide_integers(args: Arrays) -> Arrays:
    return [[array.astype(np.int32) if array.dtype == np.int8 else array for array in row] for row in args]


def _saturated(array: Any) -> Any:
    return np.clip(array, -128, 127).astype(np.int8) if array.dtype == np.int32 else array


def _flushed(array: Any) -> Any:
    if array.dtype.kind != "f":
        return array
    with np.errstate(all="ignore"):
        return np.where(np.abs(array) < np.finfo(array.dtype).tiny, array.dtype.type(0), array)


def _without_nan(array: Any) -> Any:
    return np.nan_to_num(array, nan=1.0, posinf=np.inf, neginf=-np.inf) if array.dtype.kind == "f" else array


FAULTS = [
    Fault(
        "drops the last of four members",
        ReadsFiles(replaced(r"\{\{0,1,2,3\}\}", "{{0,1,2},{3}}")),
        ("all-reduce/all/f32/add", "all-reduce/all/f32/add-any-order", "all-reduce/flattened/f32/add"),
        ("all-reduce/pairs", "all-reduce/all-implied"),
    ),
    Fault(
        "adds a member twice",
        ReadsFiles(results=lambda outs, args: [[2 * a if a.dtype == np.float32 else a for a in row] for row in outs]),
        ("all-reduce/eight/f32/add", "all-reduce/all/f32/add-any-order", "reduce-scatter/all/f32/add-any-order"),
        ("all-reduce/all/s32/add",),
    ),
    Fault(
        "permutes the wrong way",
        ReadsFiles(_reversed_pairs),
        ("collective-permute/ring", "collective-permute/chain/s4/rank-2", "send-recv/chain", "loop/collective-permute"),
        ("collective-permute/swap", "collective-permute/self", "collective-permute/none"),
    ),
    Fault(
        "leaves its own value where nobody sends",
        ReadsFiles(results=_own_value_for_zeros),
        ("collective-permute/chain/f32/rank-2", "collective-permute/none", "send-recv/one-pair/f32/rank-1"),
        ("collective-permute/ring",),
    ),
    Fault(
        "takes members in the order of their ids",
        ReadsFiles(_sorted_members),
        ("all-gather/reordered", "reduce-scatter/reordered", "all-to-all/subgroups/f32/dimension-0"),
        ("all-reduce/reordered", "all-gather/all/f32"),
    ),
    Fault(
        "does not transpose iota groups",
        ReadsFiles(replaced(r"<=\[2,2\]T\(1,0\)", "<=[4]")),
        ("all-reduce/iota-transposed", "all-to-all/partition-iota"),
        ("all-reduce/iota",),
    ),
    Fault(
        "takes ids of partitions for ids of replicas",
        ReadsFiles(replaced("channel_id=1, ", "")),
        ("all-to-all/cross-partition", "all-reduce/both/f32/add", "collective-broadcast/cross-partition"),
    ),
    Fault(
        "flattens ids partition by partition",
        ReadsFiles(_partition_by_partition),
        ("all-gather/flattened-reordered", "all-gather/flattened-subgroups", "ids/both/u32/gathered"),
        ("all-gather/flattened-partitions", "all-gather/both"),
    ),
    Fault(
        "rounds towards zero",
        ReadsFiles(replaced("bf16", "f32"), _wide, each(_truncated)),
        ("all-reduce/pairs/bf16/add-rounded", "reduce-scatter/pairs/bf16/add-rounded"),
        ("all-reduce/all/bf16/add",),
    ),
    Fault(
        "saturates integers",
        ReadsFiles(replaced(r"\bs8\b", "s32"), _wide_integers, each(_saturated)),
        ("all-reduce/all/s8/add", "all-reduce/all/s8/multiply", "reduce-scatter/all/s8/add"),
        ("all-reduce/all/s8/max", "all-gather/all/s8"),
    ),
    Fault(
        "takes the minimum for the maximum",
        ReadsFiles(replaced("maximum", "minimum")),
        ("all-reduce/all/s8/max", "all-reduce/subgroups/bf16/max"),
        ("all-reduce/all/s8/add",),
    ),
    Fault(
        "loses NaN",
        ReadsFiles(results=each(_without_nan)),
        ("all-reduce/all/f32/max-nan", "all-reduce/all/f64/add-nan", "all-reduce/all/f16/add-opposed-infinities"),
        ("all-reduce/all/f32/max-infinity",),
    ),
    Fault(
        "has one zero",
        ReadsFiles(results=each(lambda a: np.where(a == 0, a.dtype.type(0), a) if a.dtype.kind == "f" else a)),
        ("all-reduce/all/f32/add-signed-zeros", "all-reduce/all/f64/min-signed-zeros"),
        ("all-reduce/all/f32/max-infinity", "all-gather/all/s8"),
    ),
    Fault(
        "flushes subnormal numbers",
        ReadsFiles(results=each(_flushed)),
        ("all-reduce/all/f32/add-subnormal", "all-reduce/all/f64/add-subnormal"),
        ("all-reduce/all/f32/add-overflow",),
    ),
    Fault(
        "exchanges two leaves of a result",
        ReadsFiles(
            keys=lambda key: key.translate(str.maketrans("01", "10", "")) if key[:4] in ("out0", "out1") else key
        ),
        ("ids/both/u32/replica-and-partition",),
        (),
    ),
    Fault(
        "leaves a result out",
        ReadsFiles(keys=lambda key: "out0@0" if key == "out0@3" else key),
        ("all-reduce/all/f32/add",),
        ("all-reduce/three",),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    found = outcomes(fault.executor, tmp_path, *fault.found_by, *fault.not_by)
    for pattern in fault.found_by:
        alone = outcomes(fault.executor, tmp_path, pattern)
        assert {outcome.kind for outcome in alone.values()} & {"differs", "no results"}, pattern
    wrong = [name for pattern in fault.not_by for name, o in found.items() if name.startswith(pattern + "/")]
    assert [name for name in wrong if found[name].kind != "same"] == []


KINDS = (
    ("all-reduce/*/f32", "all-reduce/*/bf16"),
    ("reduce-scatter", "all-gather"),
    ("all-to-all", "collective-permute", "collective-broadcast"),
    ("ids", "ragged-all-to-all", "async-start", "*-start", "async-pairs", "send-recv", "loop", "branch", "call"),
    ("all-reduce",),
)


@pytest.mark.slow
@pytest.mark.sampled(one_in=5, first=("ids",))
@pytest.mark.parametrize("patterns", KINDS, ids=lambda patterns: patterns[0].replace("/", " "))
def test_the_reference_through_files_is_right(patterns: tuple[str, ...], tmp_path: Path) -> None:
    found = outcomes(ReadsFiles(), tmp_path, *patterns)
    assert len(found) > 10
    assert [(o.case, o.where, o.message) for o in found.values() if o.kind != "same"] == []


def test_sums_in_another_order_are_the_same(tmp_path: Path) -> None:
    executor = ReadsFiles(replaced("(to_apply=combine)", r"\1, reduction_order=ring"))
    found = outcomes(executor, tmp_path, "all-reduce/eight", "all-reduce/pairs", "reduce-scatter/all")
    assert {o.kind for o in found.values()} == {"same"}
    files = [tmp_path / "all-reduce/eight/f32/add-any-order" / name for name in ("out.npz", "expected.npz")]
    out, expected = (np.load(file) for file in files)
    assert any((out[key] != expected[key]).any() for key in expected), "the other order should move last bits"


def test_what_differs_is_named(tmp_path: Path) -> None:
    """The first leaf, the first device, the first element, both values."""

    def off_by_one(outs: Arrays, args: Arrays) -> Arrays:
        outs[2][0] = outs[2][0].copy()
        outs[2][0][1, 0] += 1
        outs[2][0][1, 2] += 1
        outs[3][0] = outs[3][0] + 1
        return outs

    (found,) = outcomes(ReadsFiles(results=off_by_one), tmp_path, "all-reduce/all/s32/add").values()
    assert (found.kind, found.where, found.differing, found.size) == ("differs", "out0@2[1,0]", 2, 6)
    assert int(found.found) == int(found.expected) + 1
    data = found.as_json()
    assert (data["leaf"], data["device"], data["index"]) == (0, 2, [1, 0])
    assert data["expected"] == str(found.expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.reshape(-1), "out0@0 has sizes [6], the program's are [2, 3] (f32[2,3])"),
        (lambda a: a.astype(np.float64), "out0@0 is float64, the program takes f32: store it as float32"),
    ],
)
def test_results_of_another_form(change: Callable[[Any], Any], said: str, tmp_path: Path) -> None:
    (found,) = outcomes(ReadsFiles(results=each(change)), tmp_path, "all-reduce/all/f32/add").values()
    assert (found.kind, found.message) == ("no results", said)


def test_a_refusal_is_told(tmp_path: Path) -> None:
    (found,) = outcomes(
        ReadsFiles(replaced(r"\{\{0,1,2,3\}\}", "{{0,1},{1,2}}")), tmp_path, "all-gather/all/s32"
    ).values()
    assert found.kind == "refused"
    assert found.message
