"""The assembler: what it says of kernels, of PTX that is wrong, and where there is none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from distxla.compiler.stages import emit
from distxla.errors import ArgumentError, CompileError
from distxla.ir.counts import Counts
from distxla.targets.grid_module import GridModule
from distxla.targets.nvptx import assembler, host_code
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.choice import CUDA
from distxla.targets.nvptx.jit_linker import LinkerError
from distxla.text.parser import parse_module
from tests.compiler.lower.grid.ops_cases import module_text


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
    ptx = str(emit(module, "ptx", Counts(1, 1)))
    cubin, (kernel,) = assembler.assemble(ptx, "sm_90")
    assert cubin.startswith(b"\x7fELF")
    assert kernel.shared_bytes == 2 * 16 * (64 + 4) * 4
    assert 16 < kernel.registers < 255
    assert kernel.spilled_bytes == 0
    several = str(emit(parse_module(module_text("select-and-scatter", "f32")), "ptx", Counts(1, 1)))
    assert [use.name for use in assembler.assemble(several, "sm_90")[1]] == ["kernel_0_r_0", "kernel_0_r_1"]


def test_ptx_that_is_wrong(tool: str) -> None:
    with pytest.raises(CompileError, match=rf"{tool} for sm_90: .*line 4"):
        assembler.assemble(".version 7.8\n.target sm_90\n.address_size 64\nnonsense\n", "sm_90")


def test_multiplications_and_additions_stay_apart(tool: str) -> None:
    """Also where the PTX does not say how they round."""

    def code(*instructions: str) -> bytes:
        lines = "\n".join(f"{line};" for line in instructions)
        text = f""".version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .f32 %f<4>;
.reg .b64 %rd<2>;
ld.param.u64 %rd0, [p];
ld.global.f32 %f0, [%rd0];
ld.global.f32 %f1, [%rd0+4];
{lines}
st.global.f32 [%rd0], %f3;
ret;
}}
"""
        return assembler.assemble(text, "sm_90")[0]

    apart = code("mul.rn.f32 %f2, %f0, %f1", "add.rn.f32 %f3, %f2, %f0")
    assert code("mul.f32 %f2, %f0, %f1", "add.f32 %f3, %f2, %f0") == apart
    assert code("fma.rn.f32 %f3, %f0, %f1, %f0") != apart


def test_a_linker_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver assembles the kernels then, but there is no cubin to show."""
    library = tmp_path / "libnvJitLink.so.12"
    library.write_bytes(b"no library")
    monkeypatch.setattr(assembler, "PTXAS", {})
    monkeypatch.setattr(assembler, "packaged", lambda places: str(library) if places else None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LinkerError, match="nvJitLink can't be loaded"):
        assembler.assemble("", "sm_90")
    monkeypatch.setattr(host_code, "chosen", lambda: CUDA)
    module = GridModule("m", code_for("sm_90"))
    made = host_code.launching_code().finish_grid(module)
    assert isinstance(made, DeviceCode)
    assert ".target" in made.code.decode()
    assert made.cubin == b""


@pytest.mark.skipif(assembler.ptxas() is None, reason="no ptxas is installed")
def test_an_assembler_without_the_permission_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As some installers unpack it."""
    copy = tmp_path / "ptxas"
    copy.write_bytes(Path(str(assembler.ptxas())).read_bytes())
    copy.chmod(stat.S_IRUSR)
    monkeypatch.setattr(assembler, "assembler", lambda: str(copy))
    monkeypatch.setattr(assembler.os, "access", lambda path, mode: False)  # root may run anything
    assert assembler.assemble(".version 7.8\n.target sm_90\n.address_size 64\n", "sm_90")[0]


def test_no_assembler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembler, "PTXAS", {"no-such-package": "ptxas"})
    monkeypatch.setattr(assembler, "LINKERS", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ArgumentError, match="install one of the Python packages no-such-package, or a CUDA toolkit"):
        emit(parse_module(module_text("pad", "f32")), "cubin", Counts(1, 1))
