"""Examples that train, train as one device does: see `gradients`. A new one is found by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distxla as dx
from tests.documentation.blocks import ROOT
from tests.documentation.gradients import Example, compare, examples

pytestmark = pytest.mark.cluster
EXAMPLES = list(examples())
DEVICES = 8  # of the one cluster that all examples share

START = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
import distxla as dx, distxla.jax as dxj

x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
w = np.ones(3, np.float32)
"""
# `w` is the same on all devices, so JAX has added up its gradients already, and their mean is their sum
OF_THE_SUM = """
def step(w, x):
    return w - 0.1 * jax.lax.pmean(jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w), "data")

mesh = dxj.make_mesh((2,), ("data",))
step = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
with dx.Cluster(partitions=8) as cluster:
    w = dxj.jit(step, cluster=cluster)(w, x)
"""
ON_NO_MESH = "w = w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)"
OF_NO_RESULT = """
mesh = dxj.make_mesh((2,), ("data",))
slope = lambda w: jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
sign = np.sign(slope(w))
"""
WRONG = {
    "w.*not as on one device, but as with doubled gradients": OF_THE_SUM,
    "no mesh of several devices": ON_NO_MESH,
    "doubled gradients change none": OF_NO_RESULT,
}


@pytest.fixture
def shared(make_cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Gives the pool's cluster wherever an example starts its own."""
    cluster = make_cluster(DEVICES)
    monkeypatch.setitem(vars(cluster), "start", lambda: cluster)
    monkeypatch.setitem(vars(cluster), "close", lambda: None)

    def start(replicas: int = 1, partitions: int = 1) -> dx.Cluster:
        assert (replicas, partitions) == (1, DEVICES), "examples with other clusters need another one here"
        return cluster

    return start


def test_examples_with_gradients_are_found() -> None:
    scripts = {"docs/guide/train_automatic.py", "docs/guide/train_shard_map.py"}
    assert {example.name.partition(":")[0] for example in EXAMPLES} >= scripts | {
        "docs/guide/jax.md",
        "docs/guide/dumps.md",
    }


@pytest.mark.slow
@pytest.mark.sampled(one_in=8, first=("docs/guide/train_shard_map.py",))
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_gradients_are_those_of_one_device(
    example: Example, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not example.in_process:
        monkeypatch.chdir(tmp_path)
        compare(example, request.getfixturevalue("shared"))
        return
    (tmp_path / "example.py").write_text(example.source)
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    command = [sys.executable, "-m", "tests.documentation.gradients", "example.py"]
    environment["PYTHONPATH"] = str(ROOT)
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, f"{example}: {run.stderr}"


@pytest.mark.sampled(one_in=3, first=(next(iter(WRONG)),))
@pytest.mark.parametrize("message", WRONG)
def test_of_a_wrong_gradient_is_told(message: str, shared: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match=message):
        compare(Example("example.py", START + WRONG[message]), shared)


@pytest.mark.exhaustive
def test_the_step_in_the_folder_of_examples() -> None:
    """examples/dp_mlp has no source in Python: its results are compared with this function's."""
    steps = [arguments.parent.name for arguments in (ROOT / "examples").glob("*/args.npz")]
    assert steps == ["dp_mlp"], "compare a new one here, too"
    jax = pytest.importorskip("jax")

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.gelu(x @ params[0]) @ params[1]
        return -jax.numpy.mean(jax.nn.log_softmax(logits)[np.arange(len(y)), y])

    with np.load(ROOT / "examples/dp_mlp/args.npz") as args, np.load(ROOT / "examples/dp_mlp/expected.npz") as outs:
        params = args["arg0@0"], args["arg1@0"]
        x, y = (np.concatenate([args[f"arg{k}@{d}"] for d in range(DEVICES)]) for k in (2, 3))
        value, slopes = jax.value_and_grad(loss)(params, x, y)
        for d in range(DEVICES):
            np.testing.assert_allclose(outs[f"out0@{d}"], value, rtol=1e-5)
            for k, (before, slope) in enumerate(zip(params, slopes, strict=True)):
                moved = (before - outs[f"out{k + 1}@{d}"]) / 0.1
                np.testing.assert_allclose(moved, slope, rtol=0, atol=1e-3 * np.abs(slope).max())
