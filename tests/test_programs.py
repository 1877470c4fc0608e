"""Whole programs: XLA's results from the text before and after its own optimisation, compiled and by reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_reference
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.programs import PROGRAMS, ShardedProgram

FORMS = ["partitioned", "optimized"]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(partitions=8) as cluster:
        yield cluster


@each_program
@pytest.mark.parametrize("form", [*FORMS, "global"])
def test_text_comes_back(program: ShardedProgram, form: str) -> None:
    module = parse_module(program.text(form))
    assert parse_module(print_module(module)) == module


@pytest.mark.sampled(one_in=3)
@each_program
@each_form
def test_reference_agrees_with_xla(program: ShardedProgram, form: str) -> None:
    module = parse_module(program.text(form))
    program.assert_results(run_reference(module, program.arguments, Counts(1, program.devices)))


@pytest.mark.sampled(one_in=4)
@pytest.mark.cluster
@each_program
@each_form
def test_compiled_agrees_with_xla(cluster: dx.Cluster, program: ShardedProgram, form: str) -> None:
    step = cluster.compile(parse_module(program.text(form)))
    program.assert_results(step(program.arguments))


@pytest.mark.sampled(one_in=3)
@pytest.mark.cluster
@each_program
def test_compiled_results_repeat_bit_for_bit(cluster: dx.Cluster, program: ShardedProgram) -> None:
    step = cluster.compile(parse_module(program.text("partitioned")))
    first = [[np.asarray(leaf).tobytes() for leaf in leaves] for leaves in step(program.arguments)]
    for _ in range(3):
        assert [[np.asarray(leaf).tobytes() for leaf in leaves] for leaves in step(program.arguments)] == first


@pytest.mark.cluster
def test_results_can_be_arguments_without_leaving_their_devices(cluster: dx.Cluster) -> None:
    """Three steps of training: the loss goes down, and equals what the reference says."""
    program = next(p for p in PROGRAMS if p.name == "dp_mlp")
    module = parse_module(program.text("partitioned"))
    step = cluster.compile(module)
    state, expected = program.arguments, program.arguments
    losses = []
    for _ in range(3):
        outs = step(state)
        wanted = run_reference(module, expected, Counts(1, 8))
        losses.append(float(np.asarray(outs[0][0])))
        assert losses[-1] == pytest.approx(float(wanted[0][0]), rel=1e-4)
        state = [[*outs[d][1:], *program.arguments[d][2:]] for d in range(8)]
        expected = [[*wanted[d][1:], *program.arguments[d][2:]] for d in range(8)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
