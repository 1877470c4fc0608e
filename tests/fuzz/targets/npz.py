"""`.npz` files: arrays that fit the program, or ArgumentError.

A member's checksum would hide its inside from a fuzzer, so inputs are changed inside their members and packed again.
"""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Iterator
from functools import cache

import numpy as np

from distxla.cli.array_files import read_leaves, to_file
from distxla.errors import ArgumentError
from distxla.text.shapes import parse_shape
from tests.fuzz.errors import assert_refusal
from tests.fuzz.targets import Target

LEAVES = [parse_shape(text) for text in ("f32[4]", "s4[3]", "bf16[2,2]", "f32[<=4]", "pred[]", "c64[2]", "f64[0,2]")]
SHAPES = {0: LEAVES, 1: LEAVES[:2]}
PIECES = [
    *("f4", "i1", "u1", "V2", "b1", "c8", "f8", "i2", "u2", "<", ">", "=", "|", "O", "True", "False", "(", ")", ","),
    *("(4,)", "(3,)", "(2, 2)", "()", "(2,)", "(0, 2)", "(1000000000000,)", "(4294967296, 4294967296)", "(-1,)", "{}"),
    *("'descr'", "'shape'", "'fortran_order'", "\x93NUMPY", "\x01", "\x00", "\xff", "0" * 5000, "[('f', '<f4')]"),
]
NAMES = [
    "arg0.npy",
    "arg0@0.npy",
    "arg1.npy",
    "arg1@1.npy",
    "arg2@0.npy",
    "arg3.npy",
    "arg4.npy",
    "arg5.npy",
    "arg9.npy",
]


@cache
def _file() -> int:
    """A file of this process alone, reached through /proc."""
    return os.memfd_create("distxla-fuzz-npz")


def check(data: bytes) -> None:
    file = _file()
    os.ftruncate(file, 0)
    os.pwrite(file, data, 0)
    try:
        found = read_leaves(f"/proc/self/fd/{file}", "arg", SHAPES)
    except ArgumentError as error:
        assert_refusal(error)
        return
    for (leaf, device), array in found.items():
        shape = SHAPES[device][leaf]
        assert array.dtype == shape.dtype.dtype
        assert shape.holds(array.shape)


def seeds() -> Iterator[bytes]:
    numbers = np.random.default_rng(1)
    every = {}
    for k, shape in enumerate(LEAVES):
        array = to_file(np.asarray(numbers.integers(0, 2, shape.dims)).astype(shape.dtype.dtype), shape.dtype)
        every[f"arg{k}"] = every[f"arg{k}@0"] = array
        yield _npz({f"arg{k}@0": array})
    yield _npz(every)
    with io.BytesIO() as file:
        np.savez_compressed(file, arg0=np.ones(4, np.float32), arg1=np.ones(3, np.uint8))
        yield file.getvalue()
    with io.BytesIO() as file:
        np.save(file, np.ones(4, np.float32))
        yield file.getvalue()


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    with io.BytesIO() as file:
        np.savez(file, **arrays)
        return file.getvalue()


def mutate(data: bytes, choose: random.Random) -> bytes | None:
    """A member's bytes or name changed, a member doubled or dropped, or None."""
    if choose.random() < 0.25:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # whatever a broken archive raises: the fuzzer goes on with its bytes
        return None
    for _ in range(choose.choice([1, 1, 2])):
        if not members:
            members = [("arg0.npy", b"\x93NUMPY\x01\x00")]
        at = choose.randrange(len(members))
        name, content = members[at]
        kind = choose.random()
        if kind < 0.8:
            members[at] = name, _changed(content, choose)
        elif kind < 0.9:
            members[at] = choose.choice(NAMES), content
        elif kind < 0.95:
            members.append((choose.choice(NAMES), content))
        else:
            del members[at]
    with io.BytesIO() as file:
        method = choose.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)  # ZipInfo: without today's date
        return file.getvalue()


def _changed(content: bytes, choose: random.Random) -> bytes:
    at = choose.randint(0, min(len(content), 140))  # the header, mostly
    cut = choose.choice([0, 1, 2, 4, 4])
    piece = choose.choice(PIECES).encode("latin-1") if choose.random() < 0.7 else bytes([choose.randrange(256)])
    return content[:at] + piece + content[at + cut :]


TARGET = Target(check, seeds, mutate, weight=2, largest=8192)
