"""`check="nan"` and `check="replication"`: what the error names, on a cluster and in the reference; and what kernels
see while they store and copy (compiler/lower/float_codes.py)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.cache_key import program_key
from distxla.compiler.compile import compile_module
from distxla.errors import ArgumentError, NonFiniteError, ReplicationError, UnsupportedOpError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.oracle.origins import Origins
from distxla.program.options import CompileOptions
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from tests.programs import PROGRAMS, ShardedProgram
from tests.runtime import hand_made
from tests.runtime.checked_programs import CheckedProgram, full, programs

each_program = pytest.mark.parametrize("program", programs(), ids=str)


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(replicas=2) as cluster:
        yield cluster


def found(error: NonFiniteError | None) -> object:
    return None if error is None else (error.kind, error.instruction, error.device, error.iterations)


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


@pytest.mark.cluster
@each_program
def test_compiled_run_names_the_first(cluster: dx.Cluster, program: CheckedProgram) -> None:
    step = cluster.compile(dx.parse(program.text), check="nan")
    if program.expected is None:
        plain = cluster.compile(dx.parse(program.text))
        for one, other in zip(step(program.rows), plain(program.rows), strict=True):
            assert np.asarray(one[0]).tobytes() == np.asarray(other[0]).tobytes()
        return
    with pytest.raises(NonFiniteError) as raised:
        step(program.rows)
    assert found(raised.value) == program.expected
    assert program.note in notes(raised.value)


@each_program
def test_reference_names_the_same(program: CheckedProgram) -> None:
    module, origins = parse_module(program.text), Origins()
    outs = run_programs(dict.fromkeys((0, 1), module), dict(enumerate(program.rows)), Counts(2, 1), origins=origins)
    error = origins.error(outs)
    assert found(error) == program.expected
    if error is not None:
        assert program.note in notes(error)


def named(name: str) -> CheckedProgram:
    return next(program for program in programs() if program.name == name)


@pytest.mark.cluster
def test_next_call_begins_anew(cluster: dx.Cluster) -> None:
    program = named("iteration")
    step = cluster.compile(dx.parse(program.text), check="nan")
    for _ in range(2):
        with pytest.raises(NonFiniteError, match="in iteration 3 of last") as raised:
            step(program.rows)
        assert raised.value.location is not None
        assert raised.value.location.text.strip().startswith("root = ")
        step([[full(9.0)], [full(9.0)]])
    with pytest.raises(NonFiniteError, match="iteration 3"):
        step(program.rows, repeat=3)


@pytest.mark.cluster
def test_large_operands_share_a_snapshot(cluster: dx.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fusion whose operands don't fit beside the others' still tells which of its instructions it was."""
    monkeypatch.setattr("distxla.compiler.plan.watch_plan.SNAPSHOT_BYTES", 1 << 10)
    program = named("within a fusion")
    text = program.text.replace("checked", "checked_together")
    made = compile_module(dx.parse(text), Counts(2, 1), CompileOptions(watched=True))
    assert made.debug.watch is not None
    assert any(step.shares_snapshot for step in made.debug.watch.steps)
    with pytest.raises(NonFiniteError) as raised:
        hand_made.adopted(cluster, made)(program.rows)
    assert raised.value.instruction == "b"


def test_error_survives_pickling() -> None:
    error = NonFiniteError("NaN", None)
    error.kind, error.instruction, error.iterations = "NaN", "log.3", (("while.7", 4),)
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.instruction, again.iterations) == ("NaN", "log.3", (("while.7", 4),))


@pytest.mark.cluster
def test_unknown_check_is_refused(cluster: dx.Cluster) -> None:
    with pytest.raises(ArgumentError, match="check: expected nan or replication, found 'nans'"):
        cluster.compile(dx.parse(named("loop").text), check="nans")


# --- replication

SHARED = """HloModule shared, num_partitions=2

ENTRY main_spmd {
  p = f32[8] parameter(0), sharding={replicated}
  q = f32[8] parameter(1), sharding={devices=[2]<=[2]}
  s = f32[8] add(p, q)
  ROOT y = (f32[8], f32[8]) tuple(s, p), sharding={{replicated}, {devices=[2]<=[2]}}
}
"""


@pytest.fixture(scope="module")
def partitions(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(partitions=2) as cluster:
        yield cluster


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("rows", "array", "index"),
    [
        ([(0.0, 1.0), (0.0, 1.0)], None, ()),
        ([(0.0, 1.0), (0.5, 0.5)], "arg0", (0,)),
        ([(0.0, 1.0), (0.0, 2.0)], "out0", (0,)),
        ([(0.0, 1.0), (-0.0, 1.0)], "arg0", (0,)),
    ],
)
def test_declared_arrays_are_compared(
    partitions: dx.Cluster, rows: list[tuple[float, float]], array: str | None, index: tuple[int, ...]
) -> None:
    step = partitions.compile(dx.parse(SHARED), check="replication")
    given = [[np.full(8, value, np.float32) for value in row] for row in rows]
    if array is None:
        step(given)
        return
    with pytest.raises(ReplicationError) as raised:
        step(given)
    error = raised.value
    assert (error.array, error.devices, error.differing, error.index) == (array, (0, 1), (1,), index)
    assert f"{array} is declared the same on devices 0, 1; device 1 has another: element [0] is" in error.message


@pytest.mark.cluster
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_right_programs_pass_all_checks(cluster_pool: ClusterPool, program: ShardedProgram) -> None:
    with cluster_pool.lease(partitions=8) as cluster:
        step = cluster.compile(dx.parse(program.text("partitioned")), check=["nan", "replication"])
        program.assert_results(step(program.arguments))


def test_what_is_not_done_is_refused() -> None:
    text = "HloModule sized\nENTRY e { p = f32[<=8] parameter(0)  ROOT y = f32[<=8] log(p) }\n"
    with pytest.raises(UnsupportedOpError, match="--check nan is not done for programs with dynamic dimensions"):
        compile_module(dx.parse(text), Counts(1, 1), CompileOptions(watched=True))


def test_checked_programs_have_keys_of_their_own() -> None:
    module = dx.parse(named("loop").text)
    assert program_key(module, Counts(2, 1)) != program_key(module, Counts(2, 1), CompileOptions(watched=True))
