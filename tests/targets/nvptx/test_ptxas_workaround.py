"""Differences whose minuend is the upper word of a product: see distxla/targets/nvptx/ptxas_workaround.py.

On a GPU tests/gpu_check runs such a kernel; here only its text can be looked at.
"""

from __future__ import annotations

import re

import pytest

from distxla.compiler.stages import emit
from distxla.ir.counts import Counts
from distxla.targets.nvptx.ptxas_workaround import keep_borrows
from distxla.text.parser import parse_module
from tests.targets.nvptx.assembler import ARCHITECTURES, assemble, needs_assembler

# of its results' first row; convnet_syncbn of tests/programs has it, too
CONVOLUTION = """
HloModule filter_gradient
ENTRY main {
  x = f32[2,12,12,3] parameter(0)
  g = f32[2,12,12,8] parameter(1)
  ROOT r = f32[3,3,3,8] convolution(x, g), window={size=12x12 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf
}
"""


def test_every_upper_word_is_kept_apart() -> None:
    text = str(emit(parse_module(CONVOLUTION), "ptx", Counts(1, 1)))
    words = re.findall(r"mul\.hi\.u32\s+(%r\d+),[^;]*;\n(.*)", text)
    assert words
    for register, following in words:
        assert f"add.s32 {register}, {register}, %zero;" in following


def test_other_instructions_stay() -> None:
    text = "\tmul.hi.u64 %rd1, %rd2, 5;\n\tmul.hi.s32 %r1, %r2, 5;\n\tmul.lo.s32 %r1, %r2, 5;\n"
    assert keep_borrows(text) == text


@needs_assembler
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_assembles(architecture: str) -> None:
    ptx = emit(parse_module(CONVOLUTION), "ptx", Counts(1, 1), gpu_architecture=architecture)
    assert assemble(str(ptx), architecture).startswith(b"\x7fELF")
