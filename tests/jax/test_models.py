"""Models of flax and optax give what JAX's CPU backend gives: by `distxla.jax` and on the plugin's devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
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
    "transformer-shardings": "compile",
    "transformer-shard_map": "compile",
    "transformer-fully_sharded": "jit",
    "transformer-bfloat16": "compile",
    "resnet-shardings": "plugin",
    "resnet-shard_map": "jit",
    "experts-shardings": "jit",
    "experts-shard_map": "plugin",
    "ring_attention-shardings": "compile",
    "ring_attention-shard_map": "jit",
    "decoding-shardings": "jit",
    "decoding-shard_map": "compile",
}
SAMPLE = "decoding-shard_map"  # it takes the least time
# the same model over the same numbers, cut otherwise: JAX is asked once
SAME = {
    "transformer-fully_sharded": "transformer-shardings",
    "resnet-shard_map": "resnet-shardings",
    "ring_attention-shard_map": "ring_attention-shardings",
}


def run_by_jax(names: Iterable[str], folder: Path, *, devices: int, by_plugin: bool) -> None:
    """Run programs in a process of its own, on JAX's CPU devices or the plugin's; a file in the folder for each."""
    theirs = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{FLAGS} --xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, "-c", INSTALL.format(devices) + RUN if by_plugin else RUN, str(folder), *names],
        cwd=ROOT,
        env={**os.environ, **({} if by_plugin else theirs)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def results(name: str, folder: Path) -> dict[str, Any]:
    with np.load(folder / f"{name}.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def by_jax(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what JAX gives for the programs that are tested."""
    folder = tmp_path_factory.mktemp("by_jax")
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    wanted = sorted({SAME.get(name, name) for name in names})
    run_by_jax(wanted, folder, devices=max(PROGRAMS[name]().devices for name in wanted), by_plugin=False)
    return folder


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
@pytest.mark.timeout(900)  # the first one waits for all of JAX's results
@pytest.mark.parametrize(
    ("name", "way"),
    [pytest.param(name, way, marks=[] if name == SAMPLE else pytest.mark.exhaustive) for name, way in WAYS.items()],
)
def test_as_jax(make_cluster: Callable[[int], dx.Cluster], by_jax: Path, tmp_path: Path, name: str, way: str) -> None:
    program = PROGRAMS[name]()
    if way == "plugin":
        run_by_jax([name], tmp_path, devices=program.devices, by_plugin=True)
        found = results(name, tmp_path)
    else:
        found = run_by_distxla(program, way, make_cluster(program.devices))
    assert_near(found, results(SAME.get(name, name), by_jax), program.tolerance)
