"""Members that come to a round with different instructions, or that can never meet: errors at once, naming both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.compile import compile_module
from distxla.errors import CollectiveMismatchError, DeadlockError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.oracle.lockstep import run_programs
from distxla.testing import ClusterPool
from tests.runtime import hand_made
from tests.runtime.failures.mismatch_cases import (
    ARGUMENTS,
    DEVICES,
    EVERYBODY,
    SUM,
    branching,
    compiled,
    fails,
    program,
)

pytestmark = pytest.mark.cluster


PAIRS = [
    ("opcode", SUM, f"f32[32] all-gather(p), dimensions={{0}}, {EVERYBODY}", "opcode: all-reduce and all-gather"),
    (
        "shape",
        SUM,
        f"f32[2,8] all-reduce(q), to_apply=add, {EVERYBODY}",
        r"operands: f32\[8\] and f32\[2,8\]",
    ),
    ("reduction", SUM, f"f32[8] all-reduce(p), to_apply=maximum, {EVERYBODY}", "to_apply: add and maximum"),
    (
        "constant in the reduction",
        f"f32[8] all-reduce(p), to_apply=scaled, {EVERYBODY}",
        f"f32[8] all-reduce(p), to_apply=twice, {EVERYBODY}",
        r"to_apply: scaled#\w+ and twice#\w+",
    ),
    (
        "channel",
        f"f32[8] all-reduce(p), to_apply=add, channel_id=1, {EVERYBODY}",
        f"f32[8] all-reduce(p), to_apply=add, channel_id=2, {EVERYBODY}",
        "channel_id: 1 and 2",
    ),
    (
        "order",
        f"f32[8] all-reduce(p), to_apply=add, reduction_order=tree, {EVERYBODY}",
        SUM,
        "reduction_order: tree and rank",
    ),
    (
        "dimension",
        f"f32[8,8] all-gather(q), dimensions={{0}}, {EVERYBODY}",
        f"f32[2,32] all-gather(q), dimensions={{1}}, {EVERYBODY}",
        r"dimensions: \{0\} and \{1\}",
    ),
]
GROUPS = [
    ("order of members", SUM, "f32[8] all-reduce(p), to_apply=add, replica_groups={{3,2,1,0}}", "{3,2,1,0}"),
    ("groups", SUM, "f32[8] all-reduce(p), to_apply=add, replica_groups={{0,1},{2,3}}", "{0,1},{2,3}"),
]


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=DEVICES) as running:
        yield running


def evaluated(first: Module, second: Module) -> Any:
    programs = {0: first, **dict.fromkeys(range(1, 4), second)}
    return lambda: run_programs(programs, dict.fromkeys(range(DEVICES), ARGUMENTS), Counts(DEVICES, 1))


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("first", "second", "differs"), [case[1:] for case in PAIRS], ids=[case[0] for case in PAIRS])
def test_two_programs(cluster: dx.Cluster, first: str, second: str, differs: str) -> None:
    import re

    modules = program(first, "a"), program(second, "b")
    for run in (compiled(cluster, *modules), evaluated(*modules)):
        text = fails(run, CollectiveMismatchError)
        assert re.search(r"device \d (comes )?with c \([ab]\.hlo:\d+:\d+\)", text), text
        assert "a.hlo" in text
        assert "b.hlo" in text
        swapped = re.sub(r"(.*): (.*) and (.*)", r"\1: \3 and \2", differs)
        assert re.search(differs, text) or re.search(swapped, text), text
    outs = cluster.run({range(DEVICES): program(SUM)}, dict.fromkeys(range(DEVICES), ARGUMENTS))
    assert np.asarray(outs[0][0]).tolist() == [4.0] * 8


@pytest.mark.parametrize(("first", "second", "groups"), [g[1:] for g in GROUPS], ids=[g[0] for g in GROUPS])
def test_groups_that_never_meet(cluster: dx.Cluster, first: str, second: str, groups: str) -> None:
    modules = program(first, "a"), program(second, "b")
    for run in (compiled(cluster, *modules), evaluated(*modules)):
        text = fails(run, CollectiveMismatchError)
        assert "device 0 waits in c (a.hlo:" in text
        assert "which waits in c (b.hlo:" in text
        assert f"replica_groups: {{}} and {{{groups}}}" in text


BRANCHES = [
    (
        "all-reduce(p), to_apply=add, replica_groups={}",
        "all-reduce(p), to_apply=maximum, replica_groups={}",
        "to_apply",
    ),
    (
        "all-reduce(p), to_apply=add, replica_groups={}",
        "all-to-all(p), dimensions={0}, replica_groups={}",
        "opcode: all-",
    ),
    (
        "all-reduce(p), to_apply=add, replica_groups={{0,1},{2,3}}",
        "all-reduce(p), to_apply=add, replica_groups={{1,0},{2,3}}",
        "replica_groups: ",
    ),
]


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("first", "second", "differs"), BRANCHES)
def test_branches_of_one_program(cluster: dx.Cluster, first: str, second: str, differs: str) -> None:
    module = branching(first, second)
    step = cluster.compile(module)
    for run in (lambda: step([ARGUMENTS] * DEVICES), evaluated(module, module)):
        text = fails(run, CollectiveMismatchError)
        assert "c1 (branching.hlo:" in text
        assert "c2 (branching.hlo:" in text
        assert differs in text


def test_a_collective_and_a_permute_that_wait_for_each_other(cluster: dx.Cluster) -> None:
    permute = "collective-permute(p), source_target_pairs={{0,1},{1,0}}"
    module = branching(permute, "all-reduce(p), to_apply=add, replica_groups={{0,1},{2,3}}")
    step = cluster.compile(module)
    text = fails(lambda: step([ARGUMENTS] * DEVICES), CollectiveMismatchError)
    assert "opcode: " in text
    assert "neither can go on" in text


def test_a_member_whose_program_has_ended(cluster: dx.Cluster) -> None:
    module = branching("negate(p)", "all-reduce(p), to_apply=add, replica_groups={}")
    step = cluster.compile(module)
    for run in (lambda: step([ARGUMENTS] * DEVICES), evaluated(module, module)):
        text = fails(run, DeadlockError)
        assert "waits in c2 (branching.hlo:" in text
    assert "for device 0, whose program has ended" in fails(lambda: step([ARGUMENTS] * DEVICES), DeadlockError)


def test_a_member_that_takes_no_part(cluster: dx.Cluster) -> None:
    compiled = compile_module(program(SUM, "a"), Counts(DEVICES, 1))
    lonely = hand_made.adopted(cluster, compiled, [0, 1])
    text = fails(lambda: cluster.run({range(2): lonely}, dict.fromkeys(range(2), ARGUMENTS)), DeadlockError)
    assert "which runs nothing in this call" in text
