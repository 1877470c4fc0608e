"""Right programs are proved, wrong ones never; where a proof of the difference is due, it names the line."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.jax.partitioner.loading import read_module
from distxla.lazy_dataclass import replace
from distxla.oracle.lockstep import run_reference
from distxla.proofs.prove import Sharded, prove
from distxla.proofs.verdict import Outcome, Verdict
from tests.jax import sharded_programs
from tests.jax.programs import stablehlo
from tests.proofs.mutations import changes
from tests.proofs.programs import FAULTS, PROGRAMS, line_of, sharded_of
from tests.proofs.transformer import lowered_step

# of tests/jax/sharded_programs.py; of the others no rule decides an instruction yet
AUTOMATIC = [
    name
    for name in sharded_programs.PROGRAMS
    if name not in ("partly manual pipeline", "convolution", "cumulative sum along the cut")
]
CHANGES = 40


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_programs_are_equal(name: str) -> None:
    verdict = prove(PROGRAMS[name].sharded(), PROGRAMS[name].unsharded())
    assert verdict.outcome is Outcome.EQUAL, verdict.text


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_programs_are_not(name: str) -> None:
    wrong, right, is_proved = FAULTS[name]
    verdict = prove(wrong.sharded(), right.unsharded())
    assert verdict.outcome is (Outcome.DIFFERS if is_proved else Outcome.UNDECIDED), verdict.text
    assert verdict.instruction is not None
    assert verdict.frame is not None
    if is_proved:
        assert f"programs.py:{line_of(wrong.function, 'wrong')}:" in verdict.frame, verdict.text


def automatic(name: str) -> tuple[Sharded, Module]:
    """A program that XLA's partitioner has cut, and the unsharded one."""
    program = sharded_programs.PROGRAMS[name]
    text = stablehlo(program.lowered()).encode()
    whole = (
        text
        if program.plain is None
        else stablehlo(jax.jit(program.plain, keep_unused=True).lower(*program.args)).encode()
    )
    return sharded_of(read_module(text, "global.mlir"), program.on.size), read_module(whole, "whole.mlir")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", AUTOMATIC)
def test_what_the_partitioner_makes_is_equal(name: str) -> None:
    verdict = prove(*automatic(name))
    assert verdict.outcome is Outcome.EQUAL, verdict.text


def test_a_transformers_training_step_is_equal() -> None:
    text = stablehlo(lowered_step(layers=2)).encode()
    verdict = prove(sharded_of(read_module(text, "step.mlir"), 8), read_module(text, "step.mlir"))
    assert verdict.outcome is Outcome.EQUAL, verdict.text


# --- soundness -------------------------------------------------------------------------------------------------------


def drawn(args: Any, seed: int) -> list[Any]:
    """Other numbers in the place of the floats."""
    generator = np.random.default_rng(seed)
    return [
        np.abs(generator.standard_normal(a.shape)).astype(a.dtype) + 0.1 if a.dtype.kind == "f" else a
        for a in map(np.asarray, jax.tree.leaves(args))
    ]


def results(sharded: Sharded, args: list[Any]) -> list[list[Any]]:
    """Of each device, by the reference."""
    devices = sharded.counts.devices
    assert sharded.parameters is not None
    rows = [[p.shards.split(x, d) for p, x in zip(sharded.parameters, args, strict=True)] for d in range(devices)]
    return run_reference(sharded.module, rows, Counts(1, devices), time_limit=20)


def is_same(sharded: Sharded, found: list[list[Any]], wanted: list[Any]) -> bool:
    """Whether each device has its shard of the whole results."""
    assert sharded.results is not None
    for d, leaves in enumerate(found):
        for one, whole, placed in zip(leaves, wanted, sharded.results, strict=True):
            due = np.asarray(placed.shards.split(whole, d))
            if not np.allclose(np.asarray(one), due, rtol=1e-3, atol=1e-4, equal_nan=True):
                return False
    return True


@cache
def manual(name: str) -> tuple[Sharded, Module, Any]:
    program = PROGRAMS[name]
    return program.sharded(), program.unsharded(), program.args


def changed(sharded: Sharded, unsharded: Module, draw: random.Random) -> list[tuple[Sharded, Verdict]]:
    """Changes of a program that are valid, with their verdicts."""
    found: list[tuple[Sharded, Verdict]] = []
    for module in changes(sharded.module, draw):
        if len(found) == CHANGES:
            break
        try:
            verify_module(module)
            found.append((replace(sharded, module=module), prove(replace(sharded, module=module), unsharded)))
        except DistxlaError:
            continue
    return found


@pytest.mark.sampled(one_in=3, first=("tensor parallel layers", "relaxation"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_change_that_matters_is_called_equal(name: str) -> None:
    sharded, unsharded, args = manual(name)
    given = drawn(args, 1)
    wanted = run_reference(unsharded, [given], Counts(1, 1))[0]
    assert is_same(sharded, results(sharded, given), wanted)
    verdicts = changed(sharded, unsharded, random.Random(name))
    for new, verdict in verdicts:
        if verdict.outcome is Outcome.EQUAL:
            assert is_same(new, results(new, given), wanted), str(new.module)
    assert any(verdict.outcome is not Outcome.EQUAL for _, verdict in verdicts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", AUTOMATIC)
def test_no_change_of_a_partitioned_program_that_matters_is_called_equal(name: str) -> None:
    sharded, unsharded = automatic(name)
    given = drawn(sharded_programs.PROGRAMS[name].args, 1)
    if name == "linear algebra":
        given = [np.asarray(a) for a in sharded_programs.PROGRAMS[name].args]
    wanted = [np.asarray(x) for x in results(sharded, given)[0]]
    for new, verdict in changed(sharded, unsharded, random.Random(name)):
        if verdict.outcome is Outcome.EQUAL:
            found = results(new, given)[0]
            assert all(
                np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in zip(found, wanted, strict=True)
            )
