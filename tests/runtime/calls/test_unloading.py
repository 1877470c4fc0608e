"""A program's image in memory: shared by the replicas of a host, and gone with the last executable."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from distxla.collectives.protocols import call_loops
from distxla.errors import ClusterError
from distxla.runtime.calls import program_loading
from distxla.runtime.failures import stragglers
from distxla.time_limit import time_limit
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster
X = np.arange(4, dtype=np.float32)
FIRST = np.array([1, 0, 0, 0], np.float32)
PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1}}}"
# the state of a group and of a channel is shared by the programs that name the same channel_id
PROGRAM = """HloModule number_{n}, replica_count=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  k = f32[4] constant({{{n}, 0, 0, 0}})
  y = f32[4] add(x, k)
  s = f32[4] all-reduce(y), channel_id={channel}, to_apply=add
  t = token[] after-all()
  send = (f32[4], u32[], token[]) send(y, t), channel_id={other}, {pairs}
  sent = token[] send-done(send), channel_id={other}
  recv = (f32[4], u32[], token[]) recv(t), channel_id={other}, {pairs}
  got = (f32[4], token[]) recv-done(recv), channel_id={other}
  z = f32[4] get-tuple-element(got), index=0
  ROOT out = (f32[4], f32[4]) tuple(s, z)
}}"""
LARGE = """HloModule large, replica_count=2
ENTRY main {{
  x = s32[{n}] parameter(0)
  k = s32[{n}] constant({{{values}}})
  ROOT y = s32[{n}] add(x, k)
}}"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[dx.Cluster]:
    with dx.Cluster(2) as opened:
        opened.wait_started()
        yield opened


def numbered(n: int) -> dx.Module:
    return dx.parse(PROGRAM.format(n=n, channel=2 * n + 1, other=2 * n + 2, pairs=PAIRS))


def images(pid: int) -> list[dict[str, int]]:
    """The mappings of programs in a process: their fields in smaps, kB."""
    text = Path(f"/proc/{pid}/smaps").read_text()
    found = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)
    return [
        {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB", mapping, re.MULTILINE)}
        for mapping in found
        if "memfd:distxla-image" in mapping.partition("\n")[0]
    ]


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        gc.collect()  # failed assertions and finished tests keep frames
        time.sleep(0.01)
    return holds()


def test_replicas_share_the_pages_of_an_image(cluster: dx.Cluster) -> None:
    n = 40_000
    values = np.random.default_rng(0).integers(0, 9, n)
    step = cluster.compile(dx.parse(LARGE.format(n=n, values=", ".join(map(str, values)))))
    x = np.zeros(n, np.int32)
    for row in step([x]):
        np.testing.assert_array_equal(np.asarray(row[0]), values)
    for _, _, pid in cluster.replicas_info:
        mapped = images(pid)
        size = sum(one["Size"] for one in mapped)
        private = sum(one["Private_Dirty"] + one["Private_Clean"] for one in mapped)
        assert size >= 4 * n // 1024
        assert private <= 64, f"of {size} kB"


def test_a_program_goes_with_its_last_executable(cluster: dx.Cluster) -> None:
    """It, its groups and its channels leave nothing on the devices and in the control block."""
    pids = [pid for _, _, pid in cluster.replicas_info]
    block = cluster.hosts.local.control
    assert cluster.loader is not None
    assert eventually(lambda: not cluster.loader.loaded)
    stay = cluster.compile(numbered(1000))
    stay([X])
    before, mapped = block.used, [len(images(pid)) for pid in pids]
    for n in range(5):
        step = cluster.compile(numbered(n))
        out = step([X])
        assert block.used > before
        del step
        assert eventually(lambda: len(cluster.loader.loaded) == 1)
        # results outlive the program
        np.testing.assert_array_equal(np.asarray(out[0][0]), 2 * X + 2 * n * FIRST)
        np.testing.assert_array_equal(np.asarray(out[1][1]), X + n * FIRST)
    assert block.used == before
    assert [len(images(pid)) for pid in pids] == mapped
    np.testing.assert_array_equal(np.asarray(stay([X])[1][1]), X + 1000 * FIRST)


@pytest.mark.exhaustive
def test_numbers_and_state_are_used_again(cluster: dx.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that loads one program after another neither runs out of numbers nor finds another one's state."""
    monkeypatch.setattr(call_loops, "MOST_PROGRAMS", 3)
    assert cluster.loader is not None
    assert eventually(lambda: not cluster.loader.loaded)
    cluster.loader._next = 0
    seen = set()
    for n in range(7):
        step = cluster.compile(numbered(n))
        for _ in range(3):
            out = step([X])
        seen.add(step.number)
        np.testing.assert_array_equal(np.asarray(out[1][0]), 2 * X + 2 * n * FIRST)
        np.testing.assert_array_equal(np.asarray(out[1][1]), X + n * FIRST)
        del step
        assert eventually(lambda: not cluster.loader.loaded)
    assert seen == {0, 1, 2}
    kept = [cluster.compile(numbered(n)) for n in range(4)]
    for step in kept[:3]:
        step([X])
    with pytest.raises(ClusterError, match="3 programs are loaded, and a cluster takes no more"):
        kept[3]([X])


def test_an_item_outlives_the_program_that_put_it_out(cluster: dx.Cluster) -> None:
    text = """HloModule feeds, replica_count=2
ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  ROOT o = token[] outfeed(x, t), outfeed_shape=f32[4]
}"""
    step = cluster.compile(dx.parse(text))
    step([X])
    del step
    assert cluster.loader is not None
    assert eventually(lambda: not cluster.loader.loaded)
    for device in range(2):
        np.testing.assert_array_equal(cluster.outfeed(device).get(timeout=5), X)


def test_a_trace_shows_programs_that_have_gone(cluster: dx.Cluster) -> None:
    with cluster.trace() as trace:
        step = cluster.compile(numbered(7))
        step([X])
        del step
        assert cluster.loader is not None
        assert eventually(lambda: not cluster.loader.loaded)
        again = cluster.compile(numbered(8))
        again([X])
    names = [piece.name for piece in trace.timeline().slices]
    assert [names.count(name) for name in ("number_7", "number_8", "s")] == [2, 2, 4]


def test_loading_onto_a_stopped_replica_ends_and_names_it(
    cluster: dx.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = cluster.compile(numbered(90))
    (_, _, pid) = cluster.replicas_info[1]
    monkeypatch.setattr(program_loading, "ATTACH_LIMIT_S", 1.0)
    monkeypatch.setattr(stragglers, "NOTICE_S", 0.3)
    monkeypatch.setattr(stragglers.LOGGER, "propagate", True)
    os.kill(pid, signal.SIGSTOP)
    try:
        watch = Stopwatch()
        with pytest.raises(ClusterError, match=r"1 of 2 replicas did not answer within 1 s: device 1 is stopped"):
            step([X])
        assert watch.seconds < 1.0 + program_loading.UNLOAD_S + 2.0
        watch = Stopwatch()
        with time_limit(0.3), pytest.raises(dx.TimeLimitError, match=r"0\.3 s ran out while loading programs"):
            step([X])
        assert watch.seconds < 2
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "distxla: device 1 is stopped, until SIGCONT" in [record.getMessage() for record in caplog.records]
    monkeypatch.undo()
    assert np.array_equal(np.asarray(step([X])[0][0]), 2 * (X + 90 * FIRST))
