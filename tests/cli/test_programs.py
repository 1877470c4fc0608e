"""`MODULE[@DEVICES]` and the counts of the world."""

from __future__ import annotations

from pathlib import Path

import pytest

from distxla.cli.programs import read_world, split_devices
from distxla.errors import ArgumentError, HloSyntaxError
from distxla.wording import ranges

BODY = "ENTRY main { ROOT x = f32[] parameter(0) }\n"


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(f"HloModule m\n{BODY}")
    return str(path)


@pytest.fixture
def sharded(tmp_path: Path) -> str:
    path = tmp_path / "sharded.hlo"
    path.write_text(f"HloModule s, replica_count=2, num_partitions=4\n{BODY}")
    return str(path)


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("a.hlo", None),
        ("a.hlo@0", (0,)),
        ("a.hlo@0-3", (0, 1, 2, 3)),
        ("a.hlo@4,5", (4, 5)),
        ("a.hlo@6,0-1", (0, 1, 6)),
    ],
)
def test_devices_after_the_at_sign(name: str, devices: tuple[int, ...] | None) -> None:
    assert split_devices(name) == ("a.hlo", devices)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.hlo@", "after @ stand device numbers"),
        ("a.hlo@x", "after @ stand device numbers"),
        ("a.hlo@3-1", "the range 3-1 is empty"),
        ("a.hlo@1,0-2", "named twice"),
        ("a.hlo@99999999", "beyond"),
    ],
)
def test_devices_that_make_no_sense(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        split_devices(name)


def test_a_file_may_have_an_at_sign_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "m@3"
    path.write_text("")
    assert split_devices(str(path)) == (str(path), None)


def test_counts_come_from_header_flags_or_devices(module: str, sharded: str) -> None:
    counts = [
        (([sharded], None, None), (2, 4)),
        (([sharded], 2, None), (2, 4)),
        (([module], 3, 2), (3, 2)),
        (([module], None, None), (1, 1)),
        (([f"{module}@0-3", f"{module}@4,5"], None, None), (1, 6)),
        (([f"{module}@0-3", f"{sharded}@4-7"], None, None), (2, 4)),
        (([f"{module}@1"], 2, None), (2, 1)),
    ]
    for arguments, expected in counts:
        world = read_world(*arguments)
        assert (world.counts.replicas, world.counts.partitions) == expected, arguments
    assert read_world([f"{module}@0-3", f"{module}@4,5"], None, None).program_of.keys() == set(range(6))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, s: ([s], 4, None), r"replica_count=2, --replicas says 4"),
        (lambda m, s: ([s], None, 8), r"num_partitions=4, --partitions says 8"),
        (lambda m, s: ([m, s], None, None), "each needs its devices"),
        (lambda m, s: ([f"{m}@0-1", f"{s}@1"], None, None), "device 1 is given to both"),
        (lambda m, s: ([f"{s}@8"], None, None), "device 8 is named, but 2 replicas x 4 partitions end at 7"),
        (lambda m, s: ([m], 1000, 1000), "are more than the"),
        (lambda m, s: ([m + ".no"], None, None), "cannot read .*No such file"),
    ],
)
def test_contradictions_are_named(module: str, sharded: str, build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=message):
        read_world(*build(module, sharded))


def test_files_that_are_no_modules(tmp_path: Path) -> None:
    binary, empty = tmp_path / "binary", tmp_path / "empty"
    binary.write_bytes(b"\xff\xfe\x00")
    empty.write_text("")
    with pytest.raises(ArgumentError, match="byte 0 is not UTF-8"):
        read_world([str(binary)], None, None)
    with pytest.raises(HloSyntaxError):
        read_world([str(empty)], None, None)
    with pytest.raises(ArgumentError, match="cannot read"):
        read_world([str(tmp_path)], None, None)


def test_ranges_are_the_inverse() -> None:
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
