"""A program is what it is itself: whatever it holds, no rule fails, and none finds a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.compiler.verify.verifier import verify_module
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.proofs.prove import Sharded, prove
from distxla.proofs.verdict import Outcome
from distxla.text.parser import parse_module
from tests.programs import PROGRAMS

TESTS = Path(__file__).parent.parent
SCHEDULES = sorted((TESTS / "tpu_schedules").glob("*.hlo"))


def of_itself(module: Module) -> Outcome:
    verify_module(module)
    counts = module.replica_count or 1, module.num_partitions or 1
    return prove(Sharded(module, Counts(*counts)), module, is_alone=counts != (1, 1)).outcome


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_partitioned_programs_are_themselves(program) -> None:  # type: ignore[no-untyped-def]
    assert of_itself(parse_module(program.text("partitioned"))) is Outcome.EQUAL
    assert of_itself(parse_module(program.text("optimized"))) is not Outcome.DIFFERS


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda p: p.stem)
def test_schedules_of_tpus_do_not_differ_from_themselves(path: Path) -> None:
    assert of_itself(parse_module(path.read_text())) is not Outcome.DIFFERS
