"""Clusters of a process share the process that compiles."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distxla.compiler import server_share
from distxla.compiler.server import CompileServer
from distxla.compiler.server_share import ServerShare
from distxla.errors import ClusterError
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module

MODULE = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"


@pytest.fixture(autouse=True)
def none_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without clusters."""
    monkeypatch.setattr(server_share, "opened", server_share.OpenServers())


def test_the_last_share_ends_the_process() -> None:
    one, other = ServerShare(), ServerShare()
    one.server.compile(parse_module(MODULE), Counts(1, 1))
    pid = one.server.pid
    one.close()
    one.close()
    other.server.compile(parse_module(MODULE), Counts(1, 1))
    assert other.server.pid == pid
    other.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(ClusterError, match="closed"):
        other.server.compile(parse_module(MODULE), Counts(1, 1))


def test_after_the_last_share_comes_another_server() -> None:
    first = ServerShare()
    closed = first.server
    first.close()
    second = ServerShare()
    first.close()
    assert second.server is not closed
    second.server.compile(parse_module(MODULE), Counts(1, 1))
    second.close()


def test_programs_that_are_compiled_at_once_have_a_server_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to one a share; the second one ends with the second share."""
    shares, together = [ServerShare(), ServerShare()], threading.Barrier(3, timeout=60)
    seen = list[CompileServer]()

    def compile_(server: CompileServer, *_: object) -> None:
        seen.append(server)
        together.wait()

    monkeypatch.setattr(CompileServer, "compile", compile_)
    threads = [threading.Thread(target=share.compile, args=(None, 1, 1)) for share in (*shares, shares[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(server_share.opened.servers) == 2
    shares[0].close()
    assert server_share.opened.servers == [shares[1].server]
    shares[1].close()
    assert server_share.opened.servers == []
    assert all(server.is_closed for server in seen)


def test_a_forked_child_has_none_of_its_parents() -> None:
    code = (
        "import os; from distxla.compiler.server_share import ServerShare\n"
        "share = ServerShare(); server = share.server\n"
        "if os.fork() == 0: os._exit(int(ServerShare().server is server))\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
