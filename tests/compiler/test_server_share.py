"""Clusters of a process share the process that compiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distxla.compiler import server_share
from distxla.compiler.server_share import ServerShare
from distxla.errors import ClusterError
from distxla.testing import ClusterPool
from distxla.text.parser import parse_module

MODULE = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"


@pytest.fixture(autouse=True)
def none_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without clusters."""
    monkeypatch.setattr(server_share, "_open", server_share._Open())


def test_the_last_share_ends_the_process() -> None:
    one, other = ServerShare(), ServerShare()
    one.server.compile(parse_module(MODULE), 1, 1)
    pid = one.server.pid
    one.close()
    one.close()
    other.server.compile(parse_module(MODULE), 1, 1)
    assert other.server.pid == pid
    other.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(ClusterError, match="closed"):
        other.server.compile(parse_module(MODULE), 1, 1)


def test_after_the_last_share_comes_another_server() -> None:
    first = ServerShare()
    first.close()
    second = ServerShare()
    first.close()
    assert second.server is not first.server
    second.server.compile(parse_module(MODULE), 1, 1)
    second.close()


def test_a_forked_child_has_none_of_its_parents() -> None:
    code = (
        "import os; from distxla.compiler.server_share import ServerShare; share = ServerShare()\n"
        "if os.fork() == 0: os._exit(int(ServerShare().server is share.server))\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pool_has_a_share_until_it_is_closed() -> None:
    pool = ClusterPool()
    pool._compiler = ServerShare()
    assert pool.is_warm
    pool.close()
    assert not pool.is_warm
    assert not server_share._open.shares
