"""C functions for custom-calls, compiled by the machine's own compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#include <stdint.h>
#include <unistd.h>

/* f32[n], f32[n] -> f32[n], n of 4 */
void saxpy(float *out, float **in) {
    for (int i = 0; i < 4; i++) out[i] = 2 * in[0][i] + in[1][i];
}

/* the example of the XlaBuilder page: f32[2], f32[2,3] -> f32[3,3] */
void myfunc(void *out, void **in) {
    float (*x) = in[0];
    float (*y)[3] = in[1];
    float (*z)[3] = out;
    for (int i = 0; i < 9; i++) z[i / 3][i % 3] = i;
    z[0][0] = x[1] + y[1][0];
}

/* (f32[2], (s32[], f32[2])), token -> ((f32[2], s32[]), f32[2]) */
void nested(void **out, void **in) {
    void **given = in[0], **inner = given[1], **first = out[0];
    for (int i = 0; i < 2; i++) ((float *)first[0])[i] = ((float *)given[0])[i] + 1;
    *(int32_t *)first[1] = in[1] ? -1 : 10 * *(int32_t *)inner[0];
    for (int i = 0; i < 2; i++) ((float *)out[1])[i] = -((float *)inner[1])[i];
}

/* the bytes of 6 floats as they lie in memory, numbered */
void in_memory(float **out, float **in) {
    for (int i = 0; i < 6; i++) { out[0][i] = in[0][i]; out[1][i] = i; }
}

/* adds in place: in[0] is where the result is to be */
void add_in_place(float *out, float **in) {
    for (int i = 0; i < 4; i++) in[0][i] += 1;
}

void crash(float *out, float **in) { *(volatile int *)0 = 1; }

void forever(float *out, float **in) { for (;;) pause(); }
"""


def build(folder: Path) -> Path:
    """The shared library with the functions above; skips the test where the machine has no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = folder / "routines.c", folder / "libroutines.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
    return library
