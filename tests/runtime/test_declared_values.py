"""`check="replication"` of values inside of a program: what the error names, on a cluster and on the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import distxla as dx
from distxla.compiler.passes.placements import placements_of
from distxla.errors import ReplicationError
from distxla.ir.counts import Counts
from distxla.oracle.lockstep import run_programs
from distxla.runtime.checks.declared_values import SameValues, SeenByReference
from distxla.testing import ClusterPool

WHOLE = 'frontend_attributes={distxla.declared_sharding="{replicated}"}, metadata={op_name="f/shard_map"}'
PAIRS = 'frontend_attributes={distxla.declared_sharding="{devices=[2,2]<=[4] last_tile_dim_replicate}"}'
# x takes y's place from the second iteration on
LOOPS = f"""
more {{ s = (s32[], f32[2], f32[2]) parameter(0)  n = s32[] get-tuple-element(s), index=0  k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT }}
body {{ s = (s32[], f32[2], f32[2]) parameter(0)  n = s32[] get-tuple-element(s), index=0
  a = f32[2] get-tuple-element(s), index=1  b = f32[2] get-tuple-element(s), index=2  one = s32[] constant(1)
  m = s32[] add(n, one)  v = f32[2] negate(a), {WHOLE}
  ROOT t = (s32[], f32[2], f32[2]) tuple(m, b, b) }}
"""
OUTER = """
outer { s = (s32[], f32[2], f32[2]) parameter(0)  n = s32[] get-tuple-element(s), index=0  one = s32[] constant(1)
  m = s32[] add(n, one)  zero = s32[] constant(0)  a = f32[2] get-tuple-element(s), index=1
  b = f32[2] get-tuple-element(s), index=2  i = (s32[], f32[2], f32[2]) tuple(zero, a, b)
  l = (s32[], f32[2], f32[2]) while(i), condition=more, body=body
  c = f32[2] get-tuple-element(l), index=1  ROOT t = (s32[], f32[2], f32[2]) tuple(m, c, b) }
"""
LOOP = """zero = s32[] constant(0)  i = (s32[], f32[2], f32[2]) tuple(zero, x, y)
  l = (s32[], f32[2], f32[2]) while(i), condition=more, body={body}
  r = f32[2] get-tuple-element(l), index=1"""
BRANCHES = f"""
yes {{ p = f32[2] parameter(0)  v = f32[2] negate(p), {WHOLE}  ROOT w = f32[2] add(v, p) }}
no {{ p = f32[2] parameter(0)  ROOT w = f32[2] add(p, p) }}
"""
BRANCH = """k = f32[] constant(2)  z = f32[] constant(0)  first = f32[1] slice(y), slice={[0:1]}
  f = f32[] reshape(first)  c = pred[] compare(f, k), direction=GT
  r = f32[2] conditional(c, x, x), true_computation=yes, false_computation=no"""
CALL = f"""
called {{ p = f32[2] parameter(0)  v = f32[2] negate(p), {WHOLE}  ROOT w = f32[2] add(v, p) }}
"""


@dataclass(frozen=True)
class Case:
    """x, y: the first elements of the arguments on each of four devices.  differing: None where nothing is told."""

    lines: str
    computations: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    differing: tuple[int, ...] | None
    told: str = ""
    told_by_reference: str = ""

    @property
    def text(self) -> str:
        entry = f"x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  {self.lines}\n  ROOT o = f32[2] multiply(r, y)"
        return f"HloModule m, num_partitions=4\n{self.computations}\nENTRY main_spmd {{\n  {entry}\n}}\n"

    def module(self) -> dx.Module:
        return dx.parse(self.text)

    def rows(self) -> list[list[np.ndarray]]:
        return [[np.array([5, value], np.float32) for value in pair] for pair in zip(self.x, self.y)]


SAME, THIRD, TWOS = (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 3.0, 1.0), (1.0, 1.0, 2.0, 2.0)
PLAIN, PAIR = (
    f"v = f32[2] negate(x), {WHOLE}\n  r = f32[2] sine(v)",
    f"v = f32[2] negate(x), {PAIRS}\n  r = f32[2] sine(v)",
)
ONCE, TWICE = LOOP.format(body="body"), LOOP.format(body="outer")
CASES = {
    "the same": Case(PLAIN, "", SAME, THIRD, None),
    "another": Case(
        PLAIN, "", THIRD, SAME, (2,),
        "v (f/shard_map) is declared the same on devices 0-3; device 2 has another: "
        "element [1] is -3.0 on device 2, -1.0 on device 0",
    ),
    "the same in parts": Case(PAIR, "", TWOS, SAME, None),
    "another in a part": Case(
        PAIR, "", THIRD, SAME, (3,),
        "v is declared the same on devices 2, 3; device 3 has another: "
        "element [1] is -1.0 on device 3, -3.0 on device 2",
    ),
    "loop": Case(ONCE, LOOPS, SAME, SAME, None),
    "loop, second iteration": Case(ONCE, LOOPS, SAME, TWOS, (2, 3), "have another, in iteration 2 of l: "),
    "loop in a loop": Case(
        TWICE, LOOPS + OUTER, SAME, TWOS, (2, 3), "have another, when it is computed for the 2nd time: ",
        "have another, in iteration 2 of l, in iteration 1 of ",
    ),
    "branch": Case(BRANCH, BRANCHES, SAME, SAME, None),
    "branch, another": Case(
        BRANCH, BRANCHES, THIRD, SAME, (2,), "has another, when it is computed for the 1st time: ", "has another: "
    ),
    "branch that isn't taken": Case(
        BRANCH.replace("constant(2)", "constant(9)"), BRANCHES, THIRD, SAME, None
    ),
    "called": Case("r = f32[2] call(x), to_apply=called", CALL, THIRD, SAME, (2,), "has another: "),
}  # fmt: skip
each_case = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def cluster(cluster_pool: ClusterPool) -> Iterator[dx.Cluster]:
    with cluster_pool.lease(partitions=4) as cluster:
        yield cluster


def require(case: Case, error: ReplicationError | None, told: str) -> None:
    if case.differing is None:
        assert error is None
        return
    assert error is not None
    assert (error.array, error.differing, error.index) == ("v", case.differing, (1,))
    assert told in error.message
    assert error.location is not None
    assert "declared_sharding" in case.text.split("\n")[error.location.line - 1]
    assert any("and isn't surely: it depends on arg" in note for note in error.__notes__)


@pytest.mark.cluster
@each_case
def test_values_are_compared(cluster: dx.Cluster, name: str) -> None:
    case = CASES[name]
    step = cluster.compile(case.module(), check="replication")
    error = None
    for _ in range(2):  # calls are counted apart
        try:
            step(case.rows())
        except ReplicationError as raised:
            error = raised
    require(case, error, case.told)


@each_case
def test_values_are_compared_on_the_reference(name: str) -> None:
    case, counts = CASES[name], Counts(1, 4)
    module = case.module()
    same = SameValues(module, counts).bound(None, range(4))
    seen = SeenByReference(dict.fromkeys(range(4), same), notes_origins=False)
    run_programs(dict.fromkeys(range(4), module), dict(enumerate(case.rows())), counts, origins=seen)
    require(case, same.error(placements_of(module, 4)), case.told_by_reference or case.told)


@pytest.mark.cluster
def test_without_the_check_the_program_is_the_same(cluster: dx.Cluster) -> None:
    """Nothing is sent to the driver, and nothing is told; with it the other instructions are the same."""
    module = CASES["loop, second iteration"].module()
    plain, checked = cluster.compile(module), cluster.compile(module, check="replication")
    plain(CASES["loop, second iteration"].rows())
    assert plain.module is module
    assert not plain.host_calls
    assert len(checked.host_calls) == 1
    assert checked.module is not None
    kept = [i for c in checked.module.computations for i in c if i.name in module[c.name].by_name]
    assert kept == [i for c in module.computations for i in c]


@pytest.mark.cluster
def test_result_is_told_as_a_result(cluster: dx.Cluster) -> None:
    lines = (
        f"x = f32[2] parameter(0)\n  v = f32[2] negate(x), {WHOLE}\n  ROOT r = f32[2] copy(v), sharding={{replicated}}"
    )
    module = dx.parse(f"HloModule m, num_partitions=4\nENTRY main_spmd {{\n  {lines}\n}}\n")
    step = cluster.compile(module, check="replication")
    with pytest.raises(ReplicationError, match="out0 is declared the same on devices 0-3"):
        step([[np.full(2, value, np.float32)] for value in THIRD])
