"""The cases: what the matrix covers, that each is a right program, that results don't come from the reference alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from zlib import crc32

import numpy as np
import pytest

from distxla.cli.conformance_outcome import same_bits
from distxla.compiler.compile import compile_module
from distxla.compiler.verify.verifier import verify_module
from distxla.conformance.case import Case
from distxla.conformance.suite import all_cases, chosen, is_matched
from distxla.ir.counts import Counts
from distxla.ir.element_type import DATA_TYPES
from distxla.ops.support.executable import CollectiveOp
from distxla.ops.support.registry import op_classes
from distxla.scheduler.deadlocks import examine
from distxla.scheduler.verdict import Outcome
from tests.compiler.runner import run_devices
from tests.documentation.blocks import ROOT

NAME = re.compile(r"[a-z-]+(/[a-z-]+)?/[a-z0-9-]+/[a-z0-9]+/[a-z0-9-]+")
KINDS = sorted({case.name.split("/")[0] for case in all_cases()})


def opcodes_of(cases: tuple[Case, ...]) -> Counter[str]:
    return Counter(i.opcode for case in cases for c in case.module().computations for i in c)


def test_names_differ_and_are_readable() -> None:
    names = [case.name for case in all_cases()]
    assert len(set(names)) == len(names) > 500
    assert [name for name in names if not NAME.fullmatch(name)] == []


def test_every_collective_and_every_element_type_is_there() -> None:
    found = opcodes_of(all_cases())
    collectives = {name for name, op in op_classes().items() if issubclass(op, CollectiveOp)}
    others = {"send", "recv", "send-done", "recv-done", "replica-id", "partition-id", "async-start", "async-done"}
    pairs = {
        f"{name}-{end}" for name in ("all-reduce", "all-gather", "collective-permute") for end in ("start", "done")
    }
    assert sorted((collectives | others | pairs) - found.keys()) == []
    for opcode in ("all-gather", "all-to-all", "collective-permute", "collective-broadcast"):
        types = {s.dtype.name for case in chosen([opcode]) for s in case.operands}
        assert types == {t.name for t in DATA_TYPES}, opcode


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_is_a_right_program(kind: str) -> None:
    """Also one that can't deadlock, whose header has its counts, and whose results have the shapes that it states."""
    for case in chosen([kind]):
        module = case.module()
        verify_module(module, case.replicas, case.partitions)
        assert (module.replica_count, module.num_partitions) == (case.replicas, case.partitions), case.name
        assert (
            examine([(range(case.devices), module)], Counts(case.replicas, case.partitions)).outcome
            is not Outcome.DEADLOCK
        )
        for row in case.expected():
            found = [(array.shape, array.dtype) for array in row]
            assert found == [(s.dims, s.dtype.dtype) for s in case.result_shapes()], case.name


@pytest.mark.parametrize("kind", KINDS)
def test_xla_reads_every_case(kind: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    for case in chosen([kind]):
        hlo.hlo_module_from_text(case.text)


def checksum(patterns: list[str]) -> int:
    arrays = [array for case in chosen(patterns) for row in case.arguments() for array in row]
    return crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


def test_arguments_are_the_same_in_every_process() -> None:
    patterns = ["all-reduce/pairs", "ragged-all-to-all", "branch", "*/s4/*"]
    program = f"from tests.conformance.test_suite import checksum; print(checksum({patterns}))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == f"{checksum(patterns)}\n", run.stderr


def test_members_are_given_different_values() -> None:
    """Else a device that takes its own value for another's would not be seen."""
    for case in chosen(["all-reduce/*/f32/add", "all-gather", "collective-permute/*/f32/rank-2"]):
        rows = case.arguments()
        if case.devices > 1 and rows[0][0].size > 2:
            assert any(not same_bits(rows[0][0], row[0]).all() for row in rows[1:]), case.name


@pytest.mark.sampled(one_in=72)
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_compiled_programs_say_the_same(case: Case) -> None:
    module = case.module()
    outs = run_devices(compile_module(module, Counts(case.replicas, case.partitions)), case.arguments())
    for row, wanted in zip(outs, case.expected(), strict=True):
        for got, want in zip(row, wanted, strict=True):
            if case.any_order:
                np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=0.02)
            else:
                assert same_bits(np.asarray(got), want).all(), f"{case.name}: {got}, not {want}"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("all-reduce", "all-reduce/all/f32/add", True),
        ("all-reduce", "all-reduce-start/all/f32/add", False),
        ("all-reduce/*/bf16", "all-reduce/subgroups/bf16/max", True),
        ("*/bf16/*", "all-reduce/subgroups/bf16/max", True),
        ("all-reduce/all/f32/add", "all-reduce/all/f32/add-rounded", False),
        ("all-reduce/all/f32/add*", "all-reduce/all/f32/add-rounded", True),
        ("all-reduce/", "all-reduce/all/f32/add", True),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert is_matched(name, pattern) is matches


def test_a_choice() -> None:
    assert len(chosen()) == len(all_cases())
    found = [case.name for case in chosen(["all-reduce/pairs", "loop"], ["*/bf16/*", "*/f16/*"])]
    assert "all-reduce/pairs/f32/add" in found
    assert "loop/all-reduce/all/f32/add" in found
    assert not [name for name in found if "f16" in name]
