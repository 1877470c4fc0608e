"""What the pool's clusters share."""

from __future__ import annotations

import pytest

from distxla.compiler import server_share
from distxla.compiler.server_share import ServerShare
from distxla.testing import ClusterPool
from tests import conftest
from tests.conftest import open_resources, warm
from tests.stopwatch import eventually


def test_the_compile_server_stays_until_the_pool_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_share, "opened", server_share.OpenServers())  # as where no test keeps a share
    pool, before = ClusterPool(), open_resources()
    share = pool.compiler = ServerShare()
    pid = share.server.pid

    def found() -> set[str]:
        return {line for line in open_resources() - before if "distxla-compile-" in line or line.startswith(f"{pid} ")}

    assert eventually(lambda: len(found()) == 3)  # two files, and the process, whose environment comes with its program
    own = found()
    with monkeypatch.context() as here:
        here.setattr(conftest, "keep_compiling", lambda: share)
        assert own <= warm(pool)
    pool.close()
    assert not own & open_resources()
    assert not pool.is_warm
