"""What a script's last run needed is started with its first use of a device; nothing where the cache had all."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("jax")

from distxla.errors import JaxError
from distxla.jax.partitioner import early_start
from distxla.jax.partitioner.early_start import start_early
from tests.jax.pjrt.scripts import ROOT


class Run:
    """A run of the script `script.py`, and what it starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, compiled: int = 0, partitioned: int = 0) -> None:
        self.started: list[str] = []
        server = SimpleNamespace(start=lambda: self.started.append("partitioner"), answered=partitioned)
        monkeypatch.setattr(early_start, "SERVER", server)
        monkeypatch.setattr(early_start, "start_server", lambda: self.started.append("compiler"))
        monkeypatch.setattr(early_start, "compiled_programs", lambda: compiled)
        at_exit: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        monkeypatch.setattr(early_start, "at_exit", lambda call, *args: at_exit.append((call, args)))
        start_early()
        for call, args in at_exit:
            call(*args)


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    path = tmp_path / "script.py"
    path.write_text("pass")
    main = ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["script.py"])
    monkeypatch.setattr(early_start, "at_exit", lambda *_: None)
    return path


BOTH = ["compiler", "partitioner"]


def test_only_the_first_run_of_a_script_gets_both(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run(monkeypatch, compiled=3, partitioned=3).started == BOTH
    assert Run(monkeypatch).started == []
    assert Run(monkeypatch).started == []


@pytest.mark.parametrize(
    ("compiled", "partitioned", "wanted"), [(1, 0, ["compiler"]), (0, 2, ["partitioner"]), (3, 1, BOTH)]
)
def test_a_script_that_needs_them_again_gets_them_again(
    monkeypatch: pytest.MonkeyPatch, compiled: int, partitioned: int, wanted: list[str]
) -> None:
    Run(monkeypatch, 1, 1)
    assert Run(monkeypatch, compiled, partitioned).started == []
    assert Run(monkeypatch).started == wanted
    assert Run(monkeypatch).started == []


@pytest.mark.parametrize("change", ["arguments", "content", "script"])
def test_another_call_is_another_script(monkeypatch: pytest.MonkeyPatch, script: Path, change: str) -> None:
    Run(monkeypatch)
    if change == "arguments":
        monkeypatch.setattr(sys, "argv", ["script.py", "--large"])
    elif change == "content":
        script.write_text("pass  # changed")
    else:
        monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script.rename(script.with_name("another.py"))))
    assert Run(monkeypatch).started == BOTH


def test_a_prompt_has_no_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    assert Run(monkeypatch).started == []
    assert list(tmp_path.rglob("*.program")) == []


def test_a_process_that_cannot_be_started_is_no_error_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise JaxError("no process")

    monkeypatch.setattr(early_start, "SERVER", SimpleNamespace(start=fail, answered=0))
    start_early()


@pytest.mark.cluster
def test_the_second_run_of_a_script_starts_neither(tmp_path: Path, script: Path) -> None:
    script.write_text(
        textwrap.dedent("""
            import distxla.jax
            distxla.jax.install(partitions=2)
            import jax, numpy as np
            from jax.sharding import NamedSharding, PartitionSpec as P
            from distxla.compiler import server_share
            from distxla.jax.partitioner.partition_server import SERVER
            mesh = jax.make_mesh((2,), ("i",))
            def started():
                return SERVER.pid is not None, server_share.opened.servers[0].process is not None
            before = started()
            x = jax.device_put(np.arange(4, dtype=np.float32), NamedSharding(mesh, P("i")))
            print(*before, *started())
            print(float(jax.jit(lambda x: x.sum())(x)), SERVER.pid is not None)
        """)
    )
    where = {
        "PYTHONPATH": str(ROOT),
        "DISTXLA_CACHE_DIR": str(tmp_path),
        "HOME": str(tmp_path),
        "DISTXLA_TIMINGS": "1",
    }
    command = [sys.executable, str(script)]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=where) for _ in range(2)
    )
    assert (first.stdout, second.stdout) == (
        "False False True True\n6.0 True\n",
        "False False False False\n6.0 False\n",
    )
    begin = r"distxla: jit__lambda: [\d.]+ ms: lowering [\d.]+, reading HLO text [\d.]+, "
    assert re.search(begin + r".*compiling [\d.]+ \(passes [\d.]+, .*linking [\d.]+\)$", first.stderr, re.MULTILINE)
    assert re.search(begin + r".*compiling [\d.]+$", second.stderr, re.MULTILINE)
