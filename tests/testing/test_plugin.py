"""The plugin for pytest, from outside: runs of pytest in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require_ended, started_processes
from tests.testing.inner import Inner

SOURCE = '''
from distxla.testing import leaks, pool, session
leaks.GRACE_S = pool.GRACE_S = session.GRACE_S = 2.0

DEADLOCK = """HloModule dead, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
region { c = (f32[2]) parameter(0)  x = f32[2] get-tuple-element(c), index=0
  y = f32[2] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  ROOT t = (f32[2]) tuple(y) }
other { c = (f32[2]) parameter(0)  x = f32[2] get-tuple-element(c), index=0  ROOT t = (f32[2]) tuple(x) }
ENTRY main {
  x = f32[2] parameter(0)
  t = (f32[2]) tuple(x)
  z = f32[] constant(0.5)
  e = f32[1] slice(x), slice={[0:1]}
  s = f32[] reshape(e)
  p = pred[] compare(s, z), direction=LT
  ROOT w = (f32[2]) conditional(p, t, t), true_computation=region, false_computation=other
}"""
kept, pids = [], []

@pytest.fixture
def step(cluster):
    pids.append(cluster.replicas_info[0][2])
    return cluster.compile(dx.parse(SUM))

def test_leaves_nothing(step):
    from distxla.testing import assert_matches_reference, assert_same_on_all_devices
    outs = step(ARGS)
    assert_same_on_all_devices(outs)
    assert_matches_reference(step, ARGS, outs)
    with pytest.raises(dx.ArgumentError) as caught:  # whose frames hold the results until the garbage is collected
        step([1, 2, 3])

def test_keeps_results(step):
    kept.append(step(ARGS)[0])

def test_keeps_a_view(step):
    kept.append(np.asarray(step(ARGS)[0][0]))

def test_keeps_an_executable(step):
    step(ARGS)
    kept.append(step)

def test_fails(step):
    outs = step(ARGS)
    assert not outs

def test_starts_a_process_and_opens_a_file(cluster):
    kept.append(subprocess.Popen(["sleep", "60"]))
    kept.append(open(__file__))

def test_forgets_a_cluster(cluster):
    dx.Cluster(1).start()

def test_same_cluster(step):
    for each in kept:
        if isinstance(each, subprocess.Popen):
            each.kill()
            each.wait()
    step(ARGS)
    assert len(set(pids)) == 1

def test_deadlocks(cluster):
    cluster.compile(dx.parse(DEADLOCK))(ARGS)

def test_same_cluster_after_a_deadlock(step):
    assert len(set(pids)) == 1

def test_kills_a_replica(cluster):
    os.kill(cluster.replicas_info[1][2], signal.SIGKILL)

def test_another_cluster(step):
    step(ARGS)
    assert len(set(pids)) == 2

def test_uses_a_feed(cluster):
    cluster.infeed(0)

# nobody feeds it: as endless as a loop, and its device takes no processor time
ENDLESS = """HloModule endless
ENTRY main { k = token[] after-all()  f = (s32[], token[]) infeed(k)  ROOT i = s32[] get-tuple-element(f), index=0 }"""

@pytest.mark.devices(1)
def test_leaves_a_call_that_does_not_end(cluster):
    step = cluster.compile(dx.parse(ENDLESS))
    def call():
        with pytest.raises(dx.DistxlaError):
            step(time_limit=100)
    threading.Thread(target=call).start()
    while not cluster._lock._is_owned() and cluster._lock.acquire(blocking=False):
        cluster._lock.release()

def test_does_not_look_at_a_failure(cluster):
    from distxla.runtime.arrays.columns import ColumnCalls, put_column
    step = cluster.compile(dx.parse(DEADLOCK))
    ColumnCalls(cluster, step).submit([put_column(cluster, (0, 1), step.parameters[0], [row[0] for row in ARGS])])

@pytest.mark.devices(1)
def test_call_has_a_time_limit(cluster):
    cluster.compile(dx.parse(ENDLESS))()

@pytest.mark.devices(replicas=2, partitions=1)
def test_several(cluster, make_cluster):
    one, other = make_cluster(2), make_cluster(2)
    assert one is not other
    assert [(c.replicas, c.partitions) for c in (cluster, one)] == [(2, 1), (1, 2)]
    assert len({c._compiler.server.pid for c in (cluster, one, other)}) == 1  # one process compiles for all
    cluster.trace()

@pytest.mark.devices(2, rows=3)
def test_bad_mark(cluster):
    pass
'''
FAILING = {
    "test_keeps_results": "teardown",
    "test_keeps_a_view": "teardown",
    "test_keeps_an_executable": "teardown",
    "test_fails": "failed",
    "test_starts_a_process_and_opens_a_file": "teardown",
    "test_forgets_a_cluster": "teardown",
    "test_deadlocks": "failed",
    "test_leaves_a_call_that_does_not_end": "teardown",
    "test_does_not_look_at_a_failure": "teardown",
    "test_call_has_a_time_limit": "failed",
    "test_bad_mark": "setup",
}


@pytest.mark.cluster
@pytest.mark.slow
def test_checks_and_reports(tmp_path: Path) -> None:
    before = started_processes()
    run = Inner(tmp_path, SOURCE, "--distxla-trace=traces", "-o", "distxla_time_limit=3")
    assert {name: outcome for name, outcome in run.outcomes().items() if outcome != "passed"} == FAILING, run.output
    kept = run.text("test_keeps_results")
    assert "of each device's memory, in arrays" in kept
    assert "f32[2] on device 0, held by the name kept of the module test_inner" in kept
    assert "views of arrays that are gone" in run.text("test_keeps_a_view")
    executable = "Executable(sum on devices 0, 1: (f32[2]) -> (f32[2])), held by the name kept of the module test_inner"
    assert executable in run.text("test_keeps_an_executable")
    opened = run.text("test_starts_a_process_and_opens_a_file")
    assert "(sleep 60)" in opened
    assert f"{tmp_path}/test_inner.py" in opened
    assert "an open cluster: Cluster(replicas=1, partitions=1)" in run.text("test_forgets_a_cluster")
    assert "devices(2, rows=3): " in run.text("test_bad_mark", "setup")
    section = run.sections("test_deadlocks", "call")["distxla: why devices could not go on"]
    assert "device 0 waits in y" in section
    assert (tmp_path / "traces/test_inner.py.test_deadlocks.html").read_text().startswith("<!DOCTYPE html>")
    assert "a call that does not end" in run.text("test_leaves_a_call_that_does_not_end")
    unseen = run.text("test_does_not_look_at_a_failure")
    assert "a call that failed, of which no result was read: <string>:4:3: deadlock: device 0" in unseen
    assert "time-limit: the time limit of 3 s ran out" in run.text("test_call_has_a_time_limit", "call")
    summary = run.output[run.output.index("= distxla clusters =") :]
    for name, partitions, why in (
        ("kills_a_replica", 2, "the replica of device 1"),
        ("uses_a_feed", 2, "its feeds were used"),
        ("leaves_a_call_that_does_not_end", 1, "a call does not end"),
    ):
        assert f"test_{name}: cluster replicas=1, partitions={partitions}: closed" in summary
        assert why in summary
    events = json.loads((tmp_path / "traces/test_inner.py.test_leaves_nothing.json").read_text())["traceEvents"]
    assert any(event.get("name") == "y" for event in events)
    require_ended(before)


LIGHT = """
import conftest
pytestmark = []
# what the entry point imports before the plugin can say so
EARLY = {f"distxla.{name}" for name in ("errors", "lazy_names", "location", "testing")}
EARLY |= {f"distxla.testing.{name}" for name in ("plugin", "sections", "unrewritten")}

def test_nothing_is_imported():
    for name in ("ray", "llvmlite", "numpy", "distxla.runtime", "distxla.testing.pool"):
        assert name not in conftest.AT_START, name

def test_assertions_of_distxla_are_as_python_has_them():
    import distxla.runtime.cluster, distxla.testing.session
    rewritten = [name for name, module in sys.modules.items() if name.startswith("distxla.")
                 and type(module.__loader__).__module__.startswith("_pytest")]
    assert set(rewritten) <= EARLY

def test_cluster_needs_a_mark(cluster):
    pass
"""


@pytest.mark.slow
def test_other_runs_pay_nothing(tmp_path: Path) -> None:
    run = Inner(tmp_path, LIGHT)
    assert run.outcomes() == {
        "test_nothing_is_imported": "passed",
        "test_assertions_of_distxla_are_as_python_has_them": "passed",
        "test_cluster_needs_a_mark": "setup",
    }, run.output
    assert "needs the number of devices, as in @pytest.mark.devices(8)" in run.text(
        "test_cluster_needs_a_mark", "setup"
    )
    code = "import sys, distxla, distxla.testing; print('pytest' in sys.modules, '_pytest' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"
    warned = "import sys, distxla, pytest; sys.exit(pytest.main(['-W', 'error', '--collect-only', '-q']))"
    subprocess.run([sys.executable, "-c", warned], cwd=tmp_path, check=True)


SHARED = """
@pytest.mark.parametrize("n", range(4))
def test_step(cluster, n):
    cluster.compile(dx.parse(SUM))(ARGS)

def test_dies(cluster):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("n", range(2))
def test_later(cluster, n):
    cluster.compile(dx.parse(SUM))(ARGS)
"""
INTERRUPTED = """
def test_interrupted(cluster):
    cluster.compile(dx.parse(SUM))(ARGS)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
def test_nothing_stays_after_ctrl_c_and_after_a_worker_died(tmp_path: Path) -> None:
    before = started_processes()
    (tmp_path / "interrupted").mkdir()
    interrupted = Inner(tmp_path / "interrupted", INTERRUPTED)
    assert interrupted.status == 2, interrupted.output
    require_ended(before)
    (tmp_path / "shared").mkdir()
    shared = Inner(tmp_path / "shared", SHARED, "-n", "2")
    assert shared.status == 1, shared.output
    failed = [name for name, outcome in shared.outcomes().items() if outcome != "passed"]
    assert failed == ["test_dies"], shared.output
    assert len(shared.reports) == 7
    require_ended(before)
