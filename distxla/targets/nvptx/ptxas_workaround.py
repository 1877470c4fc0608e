"""A mistake of NVIDIA's assembler, and how kernels avoid it.

    mul.hi.u32 %r1, %r0, 178956971;      // x / 24
    cvt.u64.u32 %rd1, %r1;
    sub.s64 %rd3, %rd1, %rd2;            // 2^32 too little where the lower word of %rd2 is 0

ptxas joins the product and the subtraction into one instruction that adds the negated lower word and takes the carry
for the missing borrow. Negating 0 gives no carry. Seen with ptxas 12.9 and 13.0 and the one of driver 580, from -O1 on,
for sm_90. Remainders of indices are such differences: a convolution lost its first row of results.

The upper word goes through an addition here whose other operand is 0 at run time, which the assembler doesn't know: the
block's number in the grid's second dimension, that no launch uses. Only additions of 64 bits are joined.
"""

from __future__ import annotations

import re

UPPER_WORD = re.compile(r"^(\s*mul\.hi\.u32\s+(%r\d+),[^;]*;)$", re.MULTILINE)
KEPT = r"\1\n\t{ .reg .b32 %zero; mov.u32 %zero, %ctaid.y; add.s32 \2, \2, %zero; }"


def keep_borrows(assembly: str) -> str:
    """The assembly with the workaround, for launches whose grid has one dimension."""
    return UPPER_WORD.sub(KEPT, assembly)


__all__ = ["keep_borrows"]
