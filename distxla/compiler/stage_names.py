"""The stages of the compiler that can be shown. The command line lists them without loading the compiler."""

from __future__ import annotations

STAGES = (
    "hlo",
    "schedule",
    "buffers",
    "llvm-unoptimised",
    "llvm",
    "asm",
    "object",
    "ptx",
    "sass-ready",
    "cubin",
)  # in the order of compilation
GPU_STAGES = ("ptx", "sass-ready", "cubin")  # those of kernels for GPUs
GPU_ARCHITECTURE = "sm_90"  # by default
