"""What XLA's partitioner warns of reaches stderr once, behind the user's line."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

import distxla as dx
import distxla.jax as dxj
from distxla.jax.partitioner import partitioner_warnings
from distxla.jax.partitioner.partition_messages import warnings_of
from tests.jax.pjrt import scripts
from tests.jax.programs import P, lowered, mesh, numbers, run, stablehlo

GRID = mesh(2, 3)
PRINTED = """I1129 15:53:28.1 7 spmd_partitioner.cc:12] nothing
W1129 15:53:28.622408   14762 spmd_partitioner.cc:666] [SPMD] Involuntary one. metadata={op_name="jit(f)/a" stack_frame_id=3}
W1129 15:53:28.622409   14762 cpu_client.cc:1] of something else
E1129 15:53:28.622409   14762 shardy_xla_pass.cc:9] another
W1129 15:53:28.700000   14762 sharding_propagation.cc:3124] GSPMD sharding propagation is going to be deprecated and not supported
W1129 15:53:29.000000   14762 spmd_partitioner.cc:666] [SPMD] Involuntary one. metadata={op_name="jit(f)/a" stack_frame_id=3}
"""  # noqa: E501


def crossed(x: Any) -> Any:
    """XLA has no way between these shardings but the whole array."""
    rows = jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(GRID, P("x", "y")))
    return jax.lax.with_sharding_constraint(rows * 2, NamedSharding(GRID, P("y", "x"))) + 1


def line_of(f: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(f)
    return first + next(k for k, line in enumerate(lines) if text in line)


@pytest.fixture
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioner_warnings, "told", set())


def test_the_partitioners_warnings_are_found_among_what_xla_prints() -> None:
    assert warnings_of(PRINTED) == ('Involuntary one. metadata={op_name="jit(f)/a" stack_frame_id=3}', "another")


def test_a_warning_is_told_once_with_the_users_line(nothing_told: None, caplog: pytest.LogCaptureFixture) -> None:
    x = numbers(6, 12)
    text = stablehlo(lowered(crossed, GRID, (x,), (P("x", "y"),)))
    with caplog.at_level(logging.WARNING, "distxla"):
        made = [dxj.partition_module(text, partitions=6) for _ in range(2)]
    np.testing.assert_allclose(run(made[1], (x,))[0], np.sin(x) * 2 + 1, rtol=1e-6)
    (told,) = caplog.messages
    line = line_of(crossed, "jnp.sin")
    assert told.startswith(f"distxla: {__file__}:{line}"), told
    assert "in crossed: XLA's partitioner: Involuntary full rematerialization. The compiler cannot go from" in told
    assert made[1].warnings == made[0].warnings != ()


def test_a_kept_result_still_warns(nothing_told: None, caplog: pytest.LogCaptureFixture) -> None:
    """The next process, which takes the program from the cache on disk, is told, too."""
    text = stablehlo(lowered(crossed, GRID, (numbers(12, 6),), (P("x", "y"),)))
    dxj.partition_module(text, partitions=6)
    partitioner_warnings.told.clear()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "distxla"):
        assert dxj.partition_module(text, partitions=6).is_cached
    assert len(caplog.messages) == 1


def test_a_module_without_warnings_tells_nothing(nothing_told: None, caplog: pytest.LogCaptureFixture) -> None:
    text = stablehlo(lowered(lambda x: x + 1, GRID, (numbers(6, 6),), (P("x", "y"),)))
    with caplog.at_level(logging.WARNING, "distxla"):
        assert dxj.partition_module(text, partitions=6).warnings == ()
    assert caplog.messages == []


def test_commands_tell_it(tmp_path: Path) -> None:
    path = tmp_path / "crossed.mlir"
    path.write_text(stablehlo(lowered(crossed, GRID, (numbers(6, 18),), (P("x", "y"),))))
    command = [sys.executable, "-m", "distxla", "partition", str(path), "-o", str(tmp_path / "out.hlo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.startswith(f"note: {__file__}:{line_of(crossed, 'jnp.sin')}")
    assert done.stderr.count("Involuntary full rematerialization") == 1


@pytest.mark.cluster
def test_the_plugin_tells_it() -> None:
    body = """
    mesh = Mesh(np.array(jax.devices()).reshape(2, 3), ("x", "y"))
    def crossed(x):
        rows = jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P("x", "y")))
        return jax.lax.with_sharding_constraint(rows * 2, NamedSharding(mesh, P("y", "x"))) + 1
    x = np.ones((6, 24), np.float32)
    for _ in range(2):
        print(np.allclose(jax.jit(crossed)(x), np.sin(x) * 2 + 1))
        jax.clear_caches()
    """
    done = scripts.run(body, devices=6)
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr
    assert done.stderr.count("Involuntary full rematerialization") == 1
    assert "in crossed: XLA's partitioner: " in done.stderr


@pytest.mark.cluster
def test_distxla_jax_tells_it(nothing_told: None, caplog: pytest.LogCaptureFixture) -> None:
    x = numbers(6, 30)
    cut = NamedSharding(dxj.make_mesh((2, 3), ("x", "y")), P("x", "y"))
    with caplog.at_level(logging.WARNING, "distxla"), dx.Cluster(partitions=6) as cluster:
        f = dxj.jit(crossed, cluster=cluster, in_shardings=cut)
        np.testing.assert_allclose(np.asarray(f(x)), np.sin(x) * 2 + 1, rtol=1e-6)
    (told,) = caplog.messages
    assert told.startswith(f"distxla: {__file__}:{line_of(crossed, 'jnp.sin')}")
