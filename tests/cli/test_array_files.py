"""The .npz format: keys, bit views, and files that are damaged."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from distxla.cli.array_files import from_file, read_leaves, to_file, write_results
from distxla.cli.output_files import require_distinct, require_writable
from distxla.errors import ArgumentError
from distxla.ir.element_type import DATA_TYPES, F32, ElementType
from distxla.ir.shape import Shape

F32_2 = Shape(F32, (2,))


def save(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **{key.replace("_at_", "@"): array for key, array in arrays.items()})
    return str(path)


@pytest.mark.parametrize("element", DATA_TYPES, ids=str)
def test_every_type_comes_back_as_it_was_written(element: ElementType, tmp_path: Path) -> None:
    bits = np.arange(1 << min(8, element.bits), dtype=np.uint8) if element.bits < 8 else np.arange(256, dtype=np.uint8)
    if element.kind == "pred":
        array = np.array([True, False])
    elif element.bits < 8:
        array = from_file(bits, Shape(element, bits.shape))
    else:
        array = np.resize(bits, 256 * element.byte_size).view(element.dtype)
    path = str(tmp_path / "out.npz")
    write_results(path, [(0, 3, array, element)])
    with np.load(path) as file:
        assert file["out0@3"].dtype == element.file_dtype
    back = read_leaves(path, "out", {3: [Shape(element, array.shape)]})[0, 3]
    assert back.dtype == element.dtype
    assert back.tobytes() == array.tobytes()


def test_negative_four_bit_integers_are_bits_without_sign(tmp_path: Path) -> None:
    from distxla.ir.element_type import S4

    array = np.array([-1, -8, 7, 0]).astype(S4.dtype)
    assert to_file(array, S4).tolist() == [15, 8, 7, 0]
    for stored in (np.array([15, 8, 7, 0], np.uint8), np.array([-1, -8, 7, 0], np.int8)):
        assert from_file(stored, Shape(S4, (4,))).astype(np.int8).tolist() == [-1, -8, 7, 0]


def test_a_key_with_a_device_wins_over_one_for_all(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", arg0=np.zeros(2, np.float32), arg0_at_1=np.ones(2, np.float32))
    found = read_leaves(path, "arg", {0: [F32_2], 1: [F32_2]})
    assert {key: array.tolist() for key, array in found.items()} == {(0, 0): [0, 0], (0, 1): [1, 1]}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(2, np.float32)}, "'x' is no key; keys are arg0@0"),
        ({"out0": np.zeros(2, np.float32)}, "'out0' is no key"),
        ({"arg00": np.zeros(2, np.float32)}, "'arg00' is no key"),
        ({"arg1_at_0": np.zeros(2, np.float32)}, "holds arg1@0, but the program has 1 such leaves"),
        ({"arg3": np.zeros(2, np.float32)}, "holds arg3, but the program has 1 such leaves"),
        ({"arg0_at_7": np.zeros(2, np.float32)}, "no program runs on device 7"),
        ({"arg0": np.zeros(3, np.float32)}, r"arg0 has sizes \[3\], the program's are \[2\]"),
        ({"arg0": np.zeros(2, np.float64)}, "arg0 is float64, the program takes f32: store it as float32"),
        ({"arg0": np.zeros(2, np.int32)}, "arg0 is int32"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_leaves(save(tmp_path / "a.npz", **arrays), "arg", {0: [F32_2]})


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    good = save(tmp_path / "good.npz", arg0=np.zeros(2, np.float32))
    contents = Path(good).read_bytes()
    texts = {
        "cut.npz": (contents[: len(contents) // 2], "is not an .npz file, or it is cut short"),
        "empty.npz": (b"", "is not an .npz file, or it is cut short"),
        "text.npz": (b"hello", "is not an .npz file, or it is cut short"),
        "damaged.npz": (contents.replace(b"NUMPY", b"NUMPZ"), "cannot be read: the file is damaged"),
    }
    for name, (data, message) in texts.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ArgumentError, match=message):
            read_leaves(str(path), "arg", {0: [F32_2]})
    np.save(tmp_path / "single.npy", np.zeros(2, np.float32))
    with pytest.raises(ArgumentError, match="a single array"):
        read_leaves(str(tmp_path / "single.npy"), "arg", {0: [F32_2]})
    with pytest.raises(ArgumentError, match="No such file"):
        read_leaves(str(tmp_path / "none.npz"), "arg", {0: [F32_2]})
    np.savez(tmp_path / "objects.npz", arg0=np.array([{}], dtype=object))
    with pytest.raises(ArgumentError, match="'arg0' cannot be read"):
        read_leaves(str(tmp_path / "objects.npz"), "arg", {0: [F32_2]})


def test_results_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(b"before")

    def broken():  # type: ignore[no-untyped-def]
        yield 0, 0, np.zeros(2, np.float32), F32
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_results(str(path), broken())
    assert path.read_bytes() == b"before"
    with pytest.raises(ArgumentError, match="cannot write"):
        write_results(str(tmp_path / "none" / "out.npz"), [(0, 0, np.zeros(2, np.float32), F32)])
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def npy(header: str) -> bytes:
    """A .npy file of version 1 with this header and 8 bytes of data."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        npy("{'descr': '<f4'"),
        npy("(((((("),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000000,), }"),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }"),
    ],
    ids=["no array", "cut header", "nesting", "objects", "huge", "huger"],
)
def test_damaged_members_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "args.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("arg0.npy", content)
    with pytest.raises(ArgumentError, match=r"args\.npz: 'arg0' (cannot be read|is no array)"):
        read_leaves(str(path), "arg", {0: [F32_2]})


@pytest.mark.parametrize(("key", "hints"), [("agr0", ["hint: did you mean arg0?"]), ("arg0@", []), ("x0", [])])
def test_a_misspelt_key_gets_a_proposal(key: str, hints: list[str], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is no key") as caught:
        read_leaves(save(tmp_path / "a.npz", **{key: np.zeros(2, np.float32)}), "arg", {0: [F32_2]})
    assert getattr(caught.value, "__notes__", []) == hints


@pytest.mark.parametrize("key", ["arg" + "9" * 5000, "arg0@" + "9" * 5000, "arg\u0661", "arg\x1b[31m"])
def test_odd_keys_are_escaped(key: str, tmp_path: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(2, np.float32))
    path = tmp_path / "args.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{key}.npy", content.getvalue())
    with pytest.raises(ArgumentError, match="is no key") as caught:
        read_leaves(str(path), "arg", {0: [F32_2]})
    assert "\x1b" not in str(caught.value)


def test_the_byte_order_of_a_file_is_its_own(tmp_path: Path) -> None:
    path = save(tmp_path / "args.npz", arg0=np.array([1, 2], ">f4"))
    assert read_leaves(path, "arg", {0: [F32_2]})[0, 0].tolist() == [1, 2]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    require_writable(str(path))
    write_results(str(path), [(0, 0, np.zeros(2, np.float32), F32)])
    assert path.is_fifo()
    with np.load(io.BytesIO(os.read(reader, 65536))) as file:
        assert file["out0@0"].tolist() == [0, 0]
    os.close(reader)


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("missing/out.npz", "No such file")])
def test_results_that_cannot_be_written_are_refused_before_the_run(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"cannot write .*: {why}"):
        require_writable(str(tmp_path / name))


def test_two_options_may_not_name_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    with pytest.raises(ArgumentError, match=f": --out and --trace name the same file: {tmp_path}/[.]/out$"):
        require_distinct({"--out": path, "--report": None, "--trace": f"{tmp_path}/./out"})
    require_distinct({"--out": path, "--trace": f"{path}.json"})
    require_distinct({"--out": "/dev/null", "--trace": "/dev/null"})
