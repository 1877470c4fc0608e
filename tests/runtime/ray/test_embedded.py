"""The embedded Ray is private to its user, and finds places for its sockets and its store."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import distxla as dx
from distxla.errors import ClusterError
from distxla.runtime.ray import commands, embedded
from tests.runtime import hand_made
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.cluster


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose path is short enough for sockets, which pytest's own is not on every worker."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d-") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def test_nobody_else_gets_at_its_sockets(temporary: Path) -> None:
    with dx.Cluster(1) as cluster:
        cluster.wait_started()
        (directory,) = temporary.glob("distxla-*")
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert list(directory.rglob("raylet"))
    assert not list(temporary.iterdir())


def test_long_paths_and_a_missing_shared_memory_folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / ("a" * 120)))  # longer than a socket's address
    monkeypatch.setattr(commands, "SHARED_MEMORY", "/nowhere")
    with dx.Cluster(1) as cluster:
        outs = hand_made.adopted(cluster, hand_made.add_one(1))([np.zeros(4, np.float32)])
        assert all(np.array_equal(np.asarray(row[0]), np.ones(4)) for row in outs)


def test_a_directory_that_cannot_be_made_is_named(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "missing"))
    with pytest.raises(ClusterError, match=r"needs a directory in .*missing: No such file"):
        embedded.EmbeddedRay()


@pytest.mark.parametrize("name", ["zygote", "gcs_server", "raylet"])
def test_a_server_that_ends_at_once_is_reported_at_once(
    name: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, f"{name.partition('_')[0]}_command", lambda *_, **__: ["/bin/false"])
    watch = Stopwatch()
    with pytest.raises(ClusterError, match=f"the {name} of the embedded Ray has ended"), dx.Cluster(1) as cluster:
        cluster.wait_started()
    assert watch.seconds < embedded.START_LIMIT_S / 2
    assert not os.listdir(temporary)
