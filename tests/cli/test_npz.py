"""Reading .npz files that somebody made to be expensive, or that are damaged: everything is refused by its header."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from distxla.cli.array_files import read_leaves
from distxla.cli.feeds import read_feeds
from distxla.cli.npz import Archive
from distxla.cli.programs import read_world
from distxla.errors import ArgumentError, OutOfMemoryError
from distxla.ir.element_type import F32
from distxla.ir.shape import Shape
from distxla.machine.memory_limits import Limit
from tests.ops.feed_programs import sums

F32_2 = Shape(F32, (2,))
MOST_BYTES = 4 << 20  # that reading headers may allocate at its peak


def npy(shape: object, data: bytes = b"", descr: object = "<f4", version: tuple[int, int] = (1, 0)) -> bytes:
    """A member with this header, whatever follows it."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    length = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + length + text + data


Content = bytes | Callable[[], bytes]  # of a member: large ones are made where they are written


def archive(path: Path, members: Sequence[tuple[str, Content]], method: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            with pytest.warns(UserWarning, match="Duplicate name") if name in file.namelist() else nullcontext():
                file.writestr(name, content() if callable(content) else content)
    return str(path)


def zeros(count: int) -> Callable[[], bytes]:
    """A member of 32-bit zeros."""
    return lambda: npy((count,), bytes(4 * count))


def saying(path: str, size: int, packed: int | None) -> str:
    """The archive of one member, with other sizes in its directory: unpacked and stored."""
    content = bytearray(Path(path).read_bytes())
    entry = content.index(b"PK\x01\x02")
    if packed is not None:
        struct.pack_into("<I", content, entry + 20, packed)
    struct.pack_into("<I", content, entry + 24, size)
    Path(path).write_bytes(content)
    return path


GOOD = npy((2,), bytes(8))
HUGE = 1 << 62
REFUSED: dict[str, tuple[list[tuple[str, Content]], str]] = {
    "another key": ([("b0.npy", zeros(1 << 24))], "'b0' is no key"),
    "another device": ([("arg0@3.npy", zeros(1 << 24))], "no program runs on device 3"),
    "another leaf": ([("arg1.npy", zeros(1 << 24))], "the program has 1 such leaves"),
    "another shape": ([("arg0.npy", zeros(1 << 24))], r"arg0 has sizes \[16777216\], the program's are \[2\]"),
    "another type": ([("arg0.npy", npy((2,), bytes(16), "<f8"))], "arg0 is float64, the program takes f32"),
    "a good one first": ([("arg0.npy", GOOD), ("junk.npy", zeros(1 << 24))], "'junk' is no key"),
    "twice": ([("arg0.npy", GOOD), ("arg0.npy", GOOD)], "holds 'arg0' 2 times"),
    "no array": ([("arg0", bytes(1 << 24))], "'arg0' is no array: the names of arrays end with .npy"),
    "too little data": ([("arg0.npy", npy((2,), bytes(7)))], r"float32\[2\], 8 bytes; it has 7"),
    "too much data": ([("arg0.npy", npy((2,), bytes(1 << 24)))], r"float32\[2\], 8 bytes; it has 16777216"),
    "no data": ([("arg0.npy", npy((HUGE,)))], rf"float32\[{HUGE}\], {4 * HUGE} bytes; it has 0"),
    "nothing, vastly": ([("arg0.npy", npy((0, HUGE, HUGE)))], "arg0.* dimensions of sizes"),
    "negative": ([("arg0.npy", npy((-2, -1), bytes(8)))], r"no array has dimensions of sizes \[-2, -1\]"),
    "beyond 64 bits": ([("arg0.npy", npy((1 << 64,)))], "no array has dimensions of sizes"),
    "true": ([("arg0.npy", npy((True, 2), bytes(8)))], "no array has dimensions of sizes"),
    "many dimensions": ([("arg0.npy", npy((1,) * 200, bytes(4)))], "no array has dimensions of sizes"),
    "objects": ([("arg0.npy", npy((2,), bytes(16), "|O"))], "it holds Python objects, which are no numbers"),
    "fields": ([("arg0.npy", npy((2,), bytes(8), [("a", "<f4")]))], "which are no numbers"),
    "wide fields": ([("arg0.npy", npy((2,), bytes(8), [("a", "<f4", (1 << 28,))]))], "which are no numbers"),
    "text": ([("arg0.npy", npy((), b"", "<U500000000"))], "which are no numbers"),
    "dates": ([("arg0.npy", npy((1,), bytes(8), "<M8[s]"))], "which are no numbers"),
    "no type": ([("arg0.npy", npy((2,), bytes(8), "what"))], "the file is damaged, or it is no array"),
    "a long header": ([("arg0.npy", npy((1,) * 20000, bytes(4), version=(2, 0)))], "it has a header of 6.* bytes"),
    "a deep header": ([("arg0.npy", npy((2,)).replace(b"(2,)", b"(" * 9 + b"2" + b"-" * 999))], "no array"),
    "version 3": ([("arg0.npy", npy((2,), bytes(8), version=(3, 0)))], "it is of version 3.0 of the format"),
    "version 9": ([("arg0.npy", npy((2,), bytes(8), version=(9, 0)))], "it is of version 9.0 of the format"),
    "code": ([("arg0.npy", npy((2,), bytes(8)).replace(b"(2,)", b"f()"))], "the file is damaged, or it is no array"),
}


@pytest.mark.sampled(one_in=9)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_member_that_does_not_fit_is_refused_unread(tmp_path: Path, case: str, method: int) -> None:
    members, message = REFUSED[case]
    path = archive(tmp_path / "a.npz", members, method)
    _refused_cheaply(path, message)


def _refused_cheaply(path: str, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match=message) as caught:
            read_leaves(path, "arg", {0: [F32_2]})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path in caught.value.message
    assert most < MOST_BYTES


@pytest.mark.parametrize(
    ("method", "size", "packed", "message"),
    [
        (zipfile.ZIP_DEFLATED, 1 << 31, None, r"it says that it holds 2147483648 bytes, in \d+ of a file of"),
        (zipfile.ZIP_STORED, 1 << 31, None, "it says that it holds 2147483648 bytes"),
        (zipfile.ZIP_STORED, 1 << 31, 1 << 31, "it says that it holds 2147483648 bytes, in 2147483648 of"),
        (zipfile.ZIP_STORED, 20, 20, "the file is damaged"),
    ],
)
def test_sizes_that_the_archive_cannot_have_are_refused(
    tmp_path: Path, method: int, size: int, packed: int | None, message: str
) -> None:
    _refused_cheaply(saying(archive(tmp_path / "a.npz", [("arg0.npy", GOOD)], method), size, packed), message)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused_since_they_allocate_as_they_like(tmp_path: Path, method: int) -> None:
    _refused_cheaply(archive(tmp_path / "a.npz", [("arg0.npy", GOOD)], method), "it is compressed by method")


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", [("arg0.npy", GOOD)])
    content = bytearray(Path(path).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    Path(path).write_bytes(content)
    _refused_cheaply(path, "it is encrypted")


def test_damaged_data_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", [("arg0.npy", npy((2,), b"\x07\x01\x02\x03\x04\x05\x06\x08"))])
    content = Path(path).read_bytes()
    Path(path).write_bytes(content.replace(b"\x07\x01\x02\x03", b"\x07\x01\xff\x03"))
    _refused_cheaply(path, "'arg0' cannot be read: the file is damaged")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path: Path, save: object, order: str) -> None:
    values = {
        "a": np.asarray(np.arange(12.0).reshape(3, 4), order=order),  # type: ignore[call-overload]
        "b": np.float16(2.5),
        "c": np.zeros((0, 3), np.int8),
        "d": np.array([True, False]),
        "e": np.array([1 + 2j], np.complex64),
    }
    save(tmp_path / "a.npz", **values)  # type: ignore[operator]
    with Archive(str(tmp_path / "a.npz")) as found:
        for member in found.members:
            wanted = np.asarray(values[member.key])
            assert (member.stand_in.dtype, member.stand_in.shape) == (wanted.dtype, wanted.shape)
            assert member.nbytes == wanted.nbytes
            assert np.array_equal(member.array, wanted)


def test_arrays_that_do_not_fit_together_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(F32, (1 << 22,))
    member = npy(shape.dims, bytes(1 << 24))
    path = archive(tmp_path / "a.npz", [("arg0.npy", member), ("arg0@1.npy", member)], zipfile.ZIP_DEFLATED)
    assert read_leaves(path, "arg", {0: [shape], 1: [shape]})[0, 1].shape == shape.dims
    limit = Limit((32 << 20) - 1, "the control group /job (memory.max)")
    monkeypatch.setattr("distxla.machine.memory_limits.free_memory", lambda: limit)
    tracemalloc.start()
    try:
        with pytest.raises(OutOfMemoryError, match=r"take 32 MiB; this host has 32 MiB left \(the control group /job"):
            read_leaves(path, "arg", {0: [shape], 1: [shape]})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_BYTES


def test_infeed_items_are_checked_before_they_are_read(tmp_path: Path) -> None:
    module = tmp_path / "sums.hlo"
    module.write_text(sums(3))
    item = io.BytesIO()
    np.save(item, np.zeros(4, np.float32))
    junk: list[tuple[str, Content]] = [("infeed0.0.npy", item.getvalue()), ("infeed1.0.npy", zeros(1 << 24))]
    path = archive(tmp_path / "a.npz", junk, zipfile.ZIP_DEFLATED)
    world = read_world([str(module)], None, None)
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match=r"item 1 of device 0, leaf 0, has sizes \[16777216\]"):
            read_feeds(world, path, keeps=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_BYTES
