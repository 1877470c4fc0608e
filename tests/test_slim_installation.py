"""What works without the extra `run`, and what the rest says where it is missing (distxla/machine/extras.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from distxla.compiler.server import CompileServer
from distxla.errors import ClusterError, CompileError
from distxla.ir.counts import Counts
from distxla.machine import extras
from distxla.runtime.cluster import Cluster
from distxla.text.parser import parse_module
from tests.slim_environment import PROJECT, ROOT, SlimEnvironment

STEP = ROOT / "examples/dp_mlp/partitioned.hlo"
ARGS = ROOT / "examples/dp_mlp/args.npz"
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
WHOLE = "HloModule whole\nENTRY main { x = f32[4] parameter(0)  ROOT y = f32[4] add(x, x) }"
GLOBAL = """HloModule g, num_partitions=2
ENTRY main { ROOT x = f32[2] parameter(0), sharding={devices=[2]<=[2]} }"""
SUMS = f"""HloModule sums, num_partitions=2
{ADD}
ENTRY main {{
  x = f32[4] parameter(0)
  ROOT y = f32[4] all-reduce(x), to_apply=add, replica_groups={{{{0,1}}}}, channel_id=1, use_global_device_ids=true
}}"""
IN_PYTHON = f"""
import sys, numpy as np, distxla as dx
assert all(hasattr(dx, name) for name in dx.__all__)
module = dx.load({str(STEP)!r})
assert dx.check(module).ok
arrays = np.load({str(ARGS)!r})
args = [[arrays[f"arg{{k}}@{{d}}"] for k in range(4)] for d in range(8)]
print(round(float(dx.reference(module, args)[0][0]), 3))
builder = dx.XlaBuilder("built", num_partitions=2)
x = builder.parameter(0, "f32[4]")
print(dx.reference(builder.build(x + x), [[np.ones(4, "f")]] * 2)[1][0])
try:
    with dx.Cluster(partitions=2):
        pass
except dx.ClusterError as error:
    print(error)
print(*{{name.partition(".")[0] for name in sys.modules}} & {{"ray", "llvmlite", "jax", "jaxlib", "cryptography"}})
"""
MISSING = "needs ray, llvmlite, scipy-openblas32 and cryptography, which are not installed: pip install 'distxla[run]'"
# what Linux has and macOS lacks
LINUX_ALONE = {
    "os": ("eventfd", "memfd_create", "pidfd_open", "pipe2", "sched_getaffinity", "sched_setaffinity"),
    "select": ("epoll",),
    "signal": ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    "fcntl": ("F_ADD_SEALS", "F_SETPIPE_SZ"),
    "mmap": ("MAP_NORESERVE", "MAP_POPULATE"),
    "socket": ("SO_PEERCRED",),
}


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> SlimEnvironment:
    return SlimEnvironment(tmp_path_factory.mktemp("slim") / "venv")


def test_check_and_the_reference_run_alone(slim: SlimEnvironment) -> None:
    done = slim.run("-m", "distxla", "check", STEP)
    assert (done.returncode, done.stderr) == (0, "")
    assert "deadlock: none can happen on the 8 devices" in done.stdout
    expected = STEP.with_name("expected.npz")
    done = slim.run("-m", "distxla", "run", STEP, "--args", ARGS, "--backend", "reference", "--expected", expected)
    assert (done.returncode, done.stderr) == (0, "")
    assert "agrees with" in done.stdout


def test_differ_runs_alone(slim: SlimEnvironment, tmp_path: Path) -> None:
    (tmp_path / "sums.hlo").write_text(SUMS)
    (tmp_path / "whole.hlo").write_text(WHOLE)
    np.savez(tmp_path / "args.npz", arg0=np.arange(4, dtype="f"))
    files = tmp_path / "sums.hlo", tmp_path / "whole.hlo"
    done = slim.run("-m", "distxla", "differ", *files, "--args", tmp_path / "args.npz")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the same: ")


def test_python_needs_neither_ray_nor_llvm(slim: SlimEnvironment) -> None:
    done = slim.run("-c", IN_PYTHON)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["2.94", "[2. 2. 2. 2.]", f"cluster: a cluster {MISSING}", ""]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", STEP], f"error: cluster: running on a cluster {MISSING}"),
        (["compile", STEP], "error: compile: compiling needs llvmlite, which is not installed: pip install"),
        (["launch", "-n", "2", "--", "python", "train.py"], f"error: cluster: a cluster {MISSING}"),
        (["partition", "whole.hlo"], "needs jaxlib, which is not installed: pip install 'distxla[jax]'"),
    ],
)
def test_the_extra_is_named_before_anything_starts(
    slim: SlimEnvironment, command: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("whole.hlo").write_text(GLOBAL)
    done = slim.run("-m", "distxla", *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "started" not in done.stderr


@pytest.mark.parametrize("command", [["check", STEP], ["run", STEP, "--backend", "reference"]])
def test_other_systems_have_what_works_without_the_extra(slim: SlimEnvironment, command: list[object]) -> None:
    """So the wheel needs no platform tag; it has no compiled code either."""
    lines = ["import os, runpy, sys", "sys.platform = 'darwin'"]
    for module, names in LINUX_ALONE.items():
        lines.append(f"import {module}")
        lines += [f"hasattr({module}, {name!r}) and delattr({module}, {name!r})" for name in names]
    words = ["distxla", *map(str, command)]
    done = slim.run(
        "-c", "\n".join([*lines, f"sys.argv = {words!r}", "runpy.run_module('distxla', run_name='__main__')"])
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "devices" in done.stdout


def test_no_file_of_the_wheel_is_compiled_code() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "distxla", "scheduler", "collectives"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {Path(name).suffix for name in tracked} <= {".py", ".sh", ".typed", ""}


def test_another_system_is_told_that_devices_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ClusterError, match="a cluster needs Linux, and this is darwin"):
        Cluster().start()


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_one_missing_package_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "cryptography")
    with pytest.raises(
        ClusterError, match="a cluster needs cryptography, which is not installed: pip install 'distxla"
    ):
        Cluster().start()
    hide(monkeypatch, "llvmlite")
    assert (
        extras.unmet("it") == "it needs llvmlite and cryptography, which are not installed: pip install 'distxla[run]'"
    )


def test_a_compile_server_names_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "llvmlite")
    with (
        CompileServer() as server,
        pytest.raises(CompileError, match="compiling needs llvmlite, which is not installed"),
    ):
        server.compile(parse_module(WHOLE), Counts(1, 1))


def in_jax(statements: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With JAX, but without LLVM."""
    code = f"import sys; sys.modules['llvmlite'] = None\nimport jax\n{statements}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "DISTXLA_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env={**variables, **environment}, capture_output=True, text=True, check=False
    )


def test_programs_of_jax_do_not_notice_that_the_plugin_cannot_run() -> None:
    pytest.importorskip("jax")
    done = in_jax("import distxla.jax.pjrt as plugin; plugin.initialize(); print(jax.devices()[0].platform)")
    assert (done.stdout, done.stderr) == ("cpu\n", "")


def test_jax_on_distxlas_devices_names_the_extra() -> None:
    pytest.importorskip("jax")
    done = in_jax("jax.devices()", JAX_PLATFORMS="distxla")
    assert done.returncode == 1
    assert "JAX on distxla's devices needs llvmlite, which is not installed: pip install 'distxla[run]'" in done.stderr
    done = in_jax("import distxla.jax; distxla.jax.install()")
    assert "distxla.errors.ClusterError: cluster: JAX on distxla's devices needs llvmlite, which" in done.stderr


def names(extra: str) -> set[str]:
    return {re.sub(r"\W+$", "", str(Requirement(text).name)) for text in PROJECT["optional-dependencies"][extra]}


def test_the_packages_that_are_looked_for_are_those_of_the_extra() -> None:
    assert set(extras.RUN) == names("run")
    assert set(extras.COMPILE) < names("run")


def test_the_page_says_what_each_extra_installs() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    rows = dict(re.findall(r"^\| `pip install '?distxla(?:\[(\w+)\])?'?` \| ([^|]*) \|", page, re.MULTILINE))
    brings = {extra: set(re.findall(r"`([\w.-]+)(?:\[\w+\])?`", cell)) for extra, cell in rows.items()}
    wanted = {extra: names(extra) for extra in ("run", "jax", "cuda12")}
    wanted[""] = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert brings == wanted
