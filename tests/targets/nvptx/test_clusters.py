"""Clusters whose replicas run kernels on a GPU, here the emulated one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distxla as dx
from distxla.ops.custom_calls import user
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module
from tests.collectives.executors import run_module
from tests.targets.nvptx.test_rounds import COLLECTIVES, DEVICES, arguments_of, module_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
STEP = """
HloModule step, replica_count=2
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4,300] parameter(0)
  total = f32[4,300] all-reduce(x), to_apply=add
  y = f32[4,300] multiply(total, x)
  zero = f32[] constant(0)
  ROOT sums = f32[4] reduce(y, zero), dimensions={1}, to_apply=add
}
"""


def test_a_process_a_device() -> None:
    """Once a program is compiled for the processor, too: what compiles takes the driver that is asked for now."""
    rng = np.random.default_rng(0)
    arguments = [[rng.standard_normal((4, 300)).astype(np.float32)] for _ in range(2)]
    total = arguments[0][0] + arguments[1][0]
    module = parse_module(STEP)
    with Cluster(replicas=2, backend="gpu") as cluster:
        executable = cluster.compile(module)
        for _ in range(2):
            for (got,), (x,) in zip(executable(arguments), arguments, strict=True):
                np.testing.assert_allclose(np.asarray(got), (total * x).sum(1), rtol=1e-4)


def test_the_compiler_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse_module(STEP)
    with Cluster(replicas=2, backend="gpu") as cluster:
        cluster.compile(module)
        monkeypatch.setenv("DISTXLA_GPU_DRIVER", "none")
        with pytest.raises(
            dx.DistxlaError, match="DISTXLA_GPU_DRIVER='none': expected emulated, emulated:N for N GPUs, or cuda"
        ):
            cluster.compile(module)


@pytest.mark.parametrize("name", COLLECTIVES)
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
        user._registered.clear()


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


def test_a_deadlock_has_the_processors_words() -> None:
    module = parse_module(CROSSED)
    arguments = [[np.ones(300, np.float32)]] * 2
    found = []
    for backend in ("cpu", "gpu"):
        with Cluster(partitions=2, backend=backend) as cluster:
            executable = cluster.compile(module)
            with pytest.raises(dx.DistxlaError) as caught:
                executable(arguments)
            assert caught.value.diagnosis is not None
            found.append((type(caught.value), caught.value.diagnosis.summary, caught.value.diagnosis.hints))
    assert found[0] == found[1]
