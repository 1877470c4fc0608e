"""Calls of GPU libraries with changes at random: `check` executes or refuses each of them, and never fails."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from distxla.compiler.obstacles import obstacles
from distxla.errors import DistxlaError
from tests.ops import (
    gpu_attention_cases,
    gpu_block_scaled_cases,
    gpu_convolution_cases,
    gpu_matmul_cases,
    gpu_norm_cases,
    gpu_solvers_cases,
    gpu_sort_and_scan_cases,
)
from tests.ops.library_call import LibraryCall

ATTENTION = gpu_attention_cases.CASES.values()
TABLES = [gpu_matmul_cases.CASES, gpu_convolution_cases.ALL, gpu_block_scaled_cases.CASES, gpu_norm_cases.CASES]
CALLS: list[LibraryCall] = [
    *(call for table in TABLES for call, _ in table.values()),
    *(call for case in ATTENTION for call in (case.forward(), case.backward())),
    *gpu_sort_and_scan_cases.FORMS.values(),
    *(call for call, _ in gpu_sort_and_scan_cases.SCANS.values()),
    *(call for call, _, _ in gpu_solvers_cases.CALLS.values()),
]
TYPES = ("f32", "s8", "pred", "c64", "bf16", "f8e4m3fn", "s32", "u8", "f64", "s4", "f4e2m1fn", "u64")
VALUES: tuple[Any, ...] = (0, 1, -1, 2, 0.5, "", "x", "NaN", "Infinity", 10**400, True, None, [], {}, "7", "kElu")


def other_shape(draw: random.Random, shape: str) -> str:
    match = re.match(r"(\w+)\[([\d,]*)\]", shape)
    if match is None:
        return shape
    name, dims = match[1], [int(n) for n in match[2].split(",") if n]
    change = draw.randrange(5)
    if change == 0:
        name = draw.choice(TYPES)
    elif change == 1:
        dims.insert(draw.randrange(len(dims) + 1), draw.choice((0, 1, 2)))
    elif change == 2 and dims:
        dims[draw.randrange(len(dims))] = draw.choice((0, 1, 2, 5, 7))
    elif change == 3 and dims:
        dims.pop(draw.randrange(len(dims)))
    else:
        return f"({shape}, f32[])"
    return f"{name}[{','.join(map(str, dims))}]"


def other_value(draw: random.Random, value: Any) -> Any:
    """The value with one change somewhere in it."""
    if isinstance(value, dict) and value:
        key = draw.choice(list(value))
        rest = {k: v for k, v in value.items() if k != key}
        return rest if draw.randrange(5) == 0 else rest | {key: other_value(draw, value[key])}
    if isinstance(value, list) and value and draw.randrange(2):
        return [*value[:-1], draw.choice(("0", "2", "9", "-1", None))]
    if isinstance(value, list):
        return draw.choice((value[:-1], [*value, "1"], [*value, "x"]))
    return draw.choice(VALUES)


def changed(draw: random.Random, call: LibraryCall) -> LibraryCall:
    operands, results = list(call.operands), list(call.results)
    change = draw.randrange(5)
    if change == 0:
        at = draw.randrange(len(operands))
        operands[at] = other_shape(draw, operands[at])
    elif change == 1:
        at = draw.randrange(len(results))
        results[at] = other_shape(draw, results[at])
    elif change == 2:
        operands.pop(draw.randrange(len(operands)))
    elif change == 3:
        operands.insert(draw.randrange(len(operands) + 1), draw.choice(operands))
    elif isinstance(call.config, dict):
        return replace(call, config=other_value(draw, call.config))
    return replace(call, operands=operands, results=results)


@pytest.mark.parametrize("seed", range(4))
def test_every_call_is_executed_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    refused = 0
    for _ in range(120):
        try:
            module = changed(draw, draw.choice(CALLS)).module
        except DistxlaError:  # no module at all: the attributes don't fit
            continue
        found = obstacles(module)
        refused += bool(found)
        assert all("custom-call of" in why for _, why in found)
    assert 20 < refused < 110
