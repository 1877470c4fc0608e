"""Models of flax and optax give what JAX's CPU backend gives: by `distxla.jax` and on the plugin's devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import distxla as dx
import distxla.jax as dxj
from tests.jax.models import PROGRAMS, Program

ROOT = Path(__file__).parents[2]
RUN = "import sys, tests.jax.models.__main__ as models; models.main(*sys.argv[1:])"
INSTALL = "import distxla.jax; distxla.jax.install(partitions={})\n"
# 16-bit numbers are rounded where the program says so, as in distxla; and less time goes into optimisation
FLAGS = "--xla_allow_excess_precision=false --xla_backend_optimization_level=0"

# each model by one way, each way with shardings and with shard_map
WAYS = {
    "transformer-shardings": "jit",
    "transformer-shard_map": "compile",
    "transformer-fully_sharded": "plugin",
    "transformer-bfloat16": "compile",
    "resnet-shardings": "plugin",
    "resnet-shard_map": "jit",
    "experts-shardings": "jit",
    "experts-shard_map": "plugin",
    "ring_attention-shardings": "compile",
    "ring_attention-shard_map": "jit",
    "decoding-shardings": "plugin",
    "decoding-shard_map": "compile",
}
SAMPLE = "decoding-shard_map"  # it takes the least time


def run_by_jax(name: str, folder: Path, *, by_plugin: bool) -> dict[str, Any]:
    """What the program gives in a process of its own, on JAX's CPU devices or the plugin's."""
    count = PROGRAMS[name]().devices
    theirs = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{FLAGS} --xla_force_host_platform_device_count={count}"}
    done = subprocess.run(
        [sys.executable, "-c", INSTALL.format(count) + RUN if by_plugin else RUN, str(folder), name],
        cwd=ROOT,
        env={**os.environ, **({} if by_plugin else theirs)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / f"{name}.npz") as found:
        return dict(found)


def run_by_distxla(program: Program, way: str, cluster: dx.Cluster) -> dict[str, Any]:
    step, options = program.step(dxj.make_mesh(tuple(program.axes.values()), tuple(program.axes)))
    if way == "jit":
        return program.run(dxj.jit(step, cluster=cluster, **options))
    traced = jax.jit(step, **options).trace(program.state, *program.batches[0])
    return program.run(dxj.compile(traced.lower(lowering_platforms=("cpu",)), cluster=cluster))


def assert_near(found: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    assert set(found) == set(wanted)
    for path, want in wanted.items():
        have = found[path]
        assert (have.dtype, have.shape) == (want.dtype, want.shape), path
        if np.issubdtype(want.dtype, np.integer):
            np.testing.assert_array_equal(have, want, err_msg=path)
        else:
            np.testing.assert_allclose(have, want, rtol=0, atol=tolerance * np.abs(want).max(), err_msg=path)


def test_every_model_has_its_way() -> None:
    assert set(WAYS) == set(PROGRAMS)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [pytest.param(name, way, marks=[] if name == SAMPLE else pytest.mark.exhaustive) for name, way in WAYS.items()],
)
def test_as_jax(make_cluster: Callable[[int], dx.Cluster], tmp_path: Path, name: str, way: str) -> None:
    program = PROGRAMS[name]()
    if way == "plugin":
        found = run_by_jax(name, tmp_path, by_plugin=True)
    else:
        found = run_by_distxla(program, way, make_cluster(program.devices))
    assert_near(found, run_by_jax(name, tmp_path, by_plugin=False), program.tolerance)
