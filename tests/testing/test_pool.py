"""What the pool's clusters share."""

from __future__ import annotations

from distxla.compiler.server import CompileServer
from distxla.testing import ClusterPool
from tests.conftest import open_resources, warm


def test_the_compile_server_stays_until_the_pool_closes() -> None:
    pool, before = ClusterPool(), open_resources()
    server = pool._server = CompileServer()
    pid = server.pid
    own = {line for line in open_resources() - before if "distxla-compile-" in line or line.startswith(f"{pid} ")}
    assert len(own) == 3  # the process, and two files
    assert own <= warm(pool)
    pool.close()
    assert not own & open_resources()
    assert not pool.is_warm
