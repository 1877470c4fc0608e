"""`distxla.jax.compare` on programs with planted bugs: right ones are the same, of wrong ones it names the line."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import distxla.jax as dxj
from tests.differ.planted.judge import verdict
from tests.differ.planted.program import TYPES, Program, load

# whose first difference is another line: keys of random numbers, and what 16-bit floats round away
ANOTHER_LINE = {
    ("noise_in_scan", "float32"), ("noise_in_scan", "bfloat16"), ("noise_in_scan", "float16"),
    ("weights_by_mesh", "float32"), ("weights_by_mesh", "bfloat16"), ("weights_by_mesh", "float16"),
    ("steepest_descent", "float16"), ("carried_halo", "bfloat16"), ("carried_halo_scanned", "bfloat16"),
    ("every_second_iteration", "bfloat16"), ("every_second_iteration", "float16"), ("helper_called_twice", "bfloat16"),
}  # fmt: skip
PROGRAMS = load()


def first_of_kinds() -> set[str]:
    """The first program of each kind of bug, and a right one."""
    found: dict[str, str] = {}
    for program in PROGRAMS.values():
        found.setdefault(program.kind, program.name)
    return set(found.values())


def cases() -> list[Any]:
    quick = first_of_kinds()
    return [
        pytest.param(
            program,
            dtype,
            bug,
            id=f"{program.name}-{dtype}-{'bug' if bug else 'right'}",
            marks=() if program.name in quick and dtype == "float32" else pytest.mark.exhaustive,
        )
        for program in PROGRAMS.values()
        for dtype in TYPES
        for bug in ((False, True) if program.has_bug else (False,))
    ]


@pytest.mark.parametrize(("program", "dtype", "bug"), cases())
def test_the_first_difference(program: Program, dtype: str, bug: bool) -> None:
    sharded, unsharded, args = program.build(jax.numpy.dtype(dtype), bug)
    found = dxj.compare(sharded, unsharded, *args).as_json()
    if bug and (program.name, dtype) in ANOTHER_LINE:
        assert not found["same"]
        return
    assert verdict(program, bug, found) in ("right", "right by use"), found["first"]
