"""Clusters whose replicas run kernels on a GPU, here the emulated one."""

from __future__ import annotations

import numpy as np
import pytest

import distxla as dx
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module

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
