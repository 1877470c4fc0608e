"""Clusters whose replicas run kernels on a GPU, here the emulated one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ops.custom_calls import user
from distxla.runtime.cluster import Cluster
from distxla.targets.nvptx.driver.errors import DriverError
from distxla.targets.nvptx.exported_blocks import ExportedBlocks
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.targets.nvptx.rounds_cases import ADD, COLLECTIVES, DEVICES, arguments_of, module_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
STEP = """
HloModule step, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4,300] parameter(0)
  total = f32[4,300] all-reduce(x), channel_id=1, to_apply=add
  y = f32[4,300] multiply(total, x)
  zero = f32[] constant(0)
  ROOT sums = f32[4] reduce(y, zero), dimensions={1}, to_apply=add
}
"""


@pytest.fixture(scope="module")
def pair(cluster_pool: ClusterPool) -> Iterator[Cluster]:
    """Two devices, for the tests after which it is as before."""
    with cluster_pool.lease(partitions=2, backend="gpu") as opened:
        yield opened


def test_a_process_a_device(pair: Cluster) -> None:
    """Once a program is compiled for the processor, too: what compiles takes the driver that is asked for now."""
    rng = np.random.default_rng(0)
    arguments = [[rng.standard_normal((4, 300)).astype(np.float32)] for _ in range(2)]
    total = arguments[0][0] + arguments[1][0]
    executable = pair.compile(parse_module(STEP))
    for _ in range(2):
        for (got,), (x,) in zip(executable(arguments), arguments, strict=True):
            np.testing.assert_allclose(np.asarray(got), (total * x).sum(1), rtol=1e-4)


def test_the_compiler_follows_the_environment(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse_module(STEP)
    pair.compile(module)
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "none")
    with pytest.raises(
        dx.DistxlaError, match="DISTXLA_GPU_DRIVER='none': expected emulated, emulated:N for N GPUs, or cuda"
    ):
        pair.compile(module)


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize("name", [*COLLECTIVES][::3])
def test_collectives_between_processes(name: str, make_cluster: Callable[..., Cluster]) -> None:
    """Each process opens the others' memory once. Programs that are loaded later use it again."""
    cluster = make_cluster(replicas=DEVICES, backend="gpu")
    for apart in (False, True):
        text = module_of(name, apart=apart)
        arguments = arguments_of(text)
        wanted = run_module("compiled", text, arguments, DEVICES)
        executable = cluster.compile(parse_module(text))
        for _ in range(2):
            for got, leaves in zip(executable(arguments), wanted, strict=True):
                assert [np.asarray(leaf).tobytes() for leaf in got] == [leaf.tobytes() for leaf in leaves]


def deadly(x: Any) -> Any:
    """A custom-call that ends its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return x


@pytest.mark.exhaustive
def test_a_device_that_dies_before_a_round() -> None:
    """The others wait for it in the round, and hear which one it was."""
    text = module_of("all-reduce").replace(
        "x = f32[6,35] add(p, p)",
        """n = u32[] replica-id()
  two = u32[] constant(2)
  dies = pred[] compare(n, two), direction=EQ
  z = f32[6,35] add(p, p)
  x = f32[6,35] conditional(dies, z, z), true_computation=ends, false_computation=stays""",
    )
    text = text.replace(
        "ENTRY",
        """ends { a = f32[6,35] parameter(0)  ROOT b = f32[6,35] custom-call(a), custom_call_target="deadly" }
stays { a = f32[6,35] parameter(0)  ROOT b = f32[6,35] copy(a) }
ENTRY""",
    )
    dx.register_custom_call("deadly", deadly)
    try:
        with Cluster(replicas=DEVICES, backend="gpu") as cluster:
            executable = cluster.compile(parse_module(text))
            with pytest.raises(dx.ReplicaLostError, match="the replica of device 2"):
                executable(arguments_of(module_of("all-reduce")))
    finally:
        user.registered.clear()


def breaks(x: Any) -> Any:
    """A custom-call after which its process can't open others' memory."""

    def refuse(self: ExportedBlocks, pid: int, address: int, handle: bytes) -> int:
        raise DriverError("lost")

    ExportedBlocks.open = refuse  # type: ignore[method-assign]
    return x


@pytest.mark.exhaustive
def test_a_peer_whose_memory_is_lost() -> None:
    """The one that moves the data fails; the others end with it."""
    text = module_of("all-reduce").replace(
        "add(p, p)", 'custom-call(q), custom_call_target="breaks"\n  q = f32[6,35] add(p, p)'
    )
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("  q = "))
    lines[at - 1], lines[at] = lines[at], lines[at - 1]
    dx.register_custom_call("breaks", breaks)
    try:
        with Cluster(replicas=DEVICES, backend="gpu") as cluster:
            executable = cluster.compile(parse_module("\n".join(lines)))
            with pytest.raises(dx.ExecutionError, match=r"opening another device's memory: .*lost"):
                executable(arguments_of(module_of("all-reduce")))
    finally:
        user.registered.clear()


def test_two_programs_in_one_group(pair: Cluster) -> None:
    """One of them has kernels, the other hasn't: both exchange arrays through the host's memory."""
    begin = f"HloModule m, num_partitions=2\n{ADD}\nENTRY main {{ p = f32[300] parameter(0)"
    total = "channel_id=1, to_apply=add"
    one = f"{begin}  x = f32[300] add(p, p)  y = f32[300] all-reduce(x), {total}  ROOT r = f32[300] add(y, y) }}"
    other = f"{begin}  ROOT r = f32[300] all-reduce(p), {total} }}"
    arguments = np.full(300, 1, np.float32), np.full(300, 3, np.float32)
    programs = {(0,): parse_module(one), (1,): parse_module(other)}
    for _ in range(3):
        outs = pair.run(programs, {0: [arguments[0]], 1: [arguments[1]]})
        assert np.asarray(outs[0][0]).tolist() == [10.0] * 300
        assert np.asarray(outs[1][0]).tolist() == [5.0] * 300


@pytest.mark.exhaustive
def test_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process a GPU; each one does a part of a round's work."""
    monkeypatch.setenv("DISTXLA_GPU_DRIVER", "emulated:4")
    with Cluster(replicas=DEVICES, backend="gpu") as cluster:
        for name in ("all-reduce", "all-gather along the last dimension", "all-to-all", "collective-permute"):
            text = module_of(name)
            arguments = arguments_of(text)
            wanted = run_module("compiled", text, arguments, DEVICES)
            executable = cluster.compile(parse_module(text))
            for got, leaves in zip(executable(arguments), wanted, strict=True):
                assert [np.asarray(leaf).tobytes() for leaf in got] == [leaf.tobytes() for leaf in leaves]


CROSSED = """
HloModule crossed, num_partitions=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
first { x = f32[300] parameter(0)  s = f32[300] all-reduce(x), to_apply=add, channel_id=1
  h = f32[150] slice(s), slice={[0:150]}  ROOT t = f32[300] all-gather(h), dimensions={0}, channel_id=2 }
second { x = f32[300] parameter(0)  h = f32[150] slice(x), slice={[0:150]}
  t = f32[300] all-gather(h), dimensions={0}, channel_id=2
  ROOT s = f32[300] all-reduce(t), to_apply=add, channel_id=1 }
ENTRY main { p = f32[300] parameter(0)  x = f32[300] add(p, p)  n = u32[] partition-id()  zero = u32[] constant(0)
  is_first = pred[] compare(n, zero), direction=EQ
  ROOT r = f32[300] conditional(is_first, x, x), true_computation=first, false_computation=second }
"""


def test_a_deadlock_has_the_processors_words(pair: Cluster, make_cluster: Callable[..., Cluster]) -> None:
    module = parse_module(CROSSED)
    arguments = [[np.ones(300, np.float32)]] * 2
    found = []
    for cluster in (make_cluster(partitions=2), pair):
        executable = cluster.compile(module)
        with pytest.raises(dx.DistxlaError) as caught:
            executable(arguments)
        assert caught.value.diagnosis is not None
        found.append((type(caught.value), caught.value.diagnosis.summary, caught.value.diagnosis.hints))
    assert found[0] == found[1]
