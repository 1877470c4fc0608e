"""The assembler: what it says of kernels, of PTX that is wrong, and where there is none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from distxla.compiler.stages import emit
from distxla.errors import ArgumentError, CompileError
from distxla.targets.nvptx import assembler
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.test_ops import module_text
from tests.targets.nvptx.assembler import needs_ptxas


@pytest.fixture(params=["ptxas", "nvJitLink"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The only one that is installed, by the name in its errors."""
    tool = str(request.param)
    if tool == "nvJitLink":
        monkeypatch.setattr(assembler, "PTXAS", {})
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setattr(assembler, "LINKERS", {})
    if assembler.assembler() is None:
        pytest.skip(f"no {tool}: none of its Python packages is installed")
    return tool


def test_what_kernels_need(tool: str) -> None:
    """Two tiles of 16 lines of 64 f32, 4 apart, in shared memory; kernels in the order of the text."""
    module = parse_module(module_text("dot, tiles", "f32"))
    ptx = str(emit(module, "ptx", replicas=1, partitions=1))
    cubin, (kernel,) = assembler.assemble(ptx, "sm_90")
    assert cubin.startswith(b"\x7fELF")
    assert kernel.shared_bytes == 2 * 16 * (64 + 4) * 4
    assert 16 < kernel.registers < 255
    assert kernel.spilled_bytes == 0
    several = str(emit(parse_module(module_text("select-and-scatter", "f32")), "ptx", replicas=1, partitions=1))
    assert [use.name for use in assembler.assemble(several, "sm_90")[1]] == ["kernel_0_r_0", "kernel_0_r_1"]


def test_ptx_that_is_wrong(tool: str) -> None:
    with pytest.raises(CompileError, match=rf"{tool} for sm_90: .*line 4"):
        assembler.assemble(".version 7.8\n.target sm_90\n.address_size 64\nnonsense\n", "sm_90")


@needs_ptxas
def test_an_assembler_without_the_permission_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As some installers unpack it."""
    copy = tmp_path / "ptxas"
    copy.write_bytes(Path(str(assembler.assembler())).read_bytes())
    copy.chmod(stat.S_IRUSR)
    monkeypatch.setattr(assembler, "assembler", lambda: str(copy))
    monkeypatch.setattr(assembler.os, "access", lambda path, mode: False)  # root may run anything
    assert assembler.assemble(".version 7.8\n.target sm_90\n.address_size 64\n", "sm_90")[0]


def test_no_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembler, "PTXAS", {"no-such-package": "ptxas"})
    monkeypatch.setattr(assembler, "LINKERS", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArgumentError, match="install the Python package no-such-package, or a CUDA toolkit"):
        emit(parse_module(module_text("pad", "f32")), "cubin", replicas=1, partitions=1)
