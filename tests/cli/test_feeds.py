"""`--infeed` and `--outfeed`: files, types, what is left over, ends, several devices, both backends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distxla.cli.feeds import read_feeds, uses_of
from distxla.cli.main import main
from distxla.cli.programs import read_world
from distxla.errors import ArgumentError
from distxla.ir.stream_key import INFEED, OUTFEED, StreamKey, StreamKind
from distxla.text.parser import parse_module
from tests.cli.called import call
from tests.ops.feed_programs import CHANNELS, TAKERS, echo, sums

F32 = np.float32


def status_of(*args: str) -> int:
    """Run the command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def save(folder: Path, **arrays: Any) -> str:
    """Keys with `_` for `.` and `__` for `@`."""
    path = folder / "infeed.npz"
    np.savez(path, allow_pickle=False, **{k.replace("__", "@").replace("_", "."): v for k, v in arrays.items()})
    return str(path)


def load(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(file)


def numbered(count: int, devices: int) -> dict[str, Any]:
    return {f"infeed{n}_0__{d}": np.full(4, 10 * d + n, F32) for n in range(count) for d in range(devices)}


def test_on_the_reference_items_go_in_and_come_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = write(tmp_path, "sums.hlo", sums(3, header=", replica_count=2"))
    out = tmp_path / "out.npz"
    arguments = ["run", module, "--backend", "reference", "--infeed", save(tmp_path, **numbered(8, 2))]
    assert status_of(*arguments, "--outfeed", str(out), "--repeat", "2", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["infeeds"] == [{"device": d, "items": 8, "left": 2} for d in range(2)]
    assert printed["outfeeds"] == [{"device": d, "items": 6} for d in range(2)]
    found = load(out)
    assert sorted(found) == sorted(f"outfeed{n}.0@{d}" for n in range(6) for d in range(2))
    first = found["outfeed0.0@1"] - 10
    assert np.allclose(found["outfeed2.0@1"], first + 10 + 11 + 12)
    assert np.allclose(found["outfeed3.0@1"], first + 13)  # the second step's


def test_items_that_are_left_over_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = write(tmp_path, "sums.hlo", sums(2))
    assert status_of("run", module, "--backend", "reference", "--infeed", save(tmp_path, **numbered(5, 1))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  infeed     5 items for 1 device; 3 left over on device 0" in lines
    assert "  outfeed    2 items from 1 device" in lines


@pytest.mark.parametrize("given", [[], ["--infeed"]])
def test_an_infeed_without_items_is_an_error_that_keeps_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str]
) -> None:
    module = write(tmp_path, "sums.hlo", sums(4))
    out = tmp_path / "out.npz"
    infeed = [*given, save(tmp_path, **numbered(3, 1))] if given else []
    assert status_of("run", module, "--backend", "reference", *infeed, "--outfeed", str(out)) == 1
    count = 3 if given else 0
    error = capsys.readouterr().err
    assert (
        f"sums.hlo:7:3: error: stream-end: f on device 0 wants item {count}: the infeed was closed after {count} items"
        in error
    )
    assert out.exists() == bool(given)
    assert not given or sorted(load(out)) == [f"outfeed{n}.0@0" for n in range(3)]


MIXED = {
    "infeed0_0": np.array([1, 2], F32),
    "infeed1_0": np.int32(3),
    "infeed2_0": np.arange(3, dtype=np.uint8),
    "infeed2_1": np.array(True),
    "infeed3_0": np.uint16(0x3FC0),  # 1.5 in bf16
}


def test_items_take_the_types_of_the_infeeds_that_fit(tmp_path: Path) -> None:
    module = write(tmp_path, "takers.hlo", TAKERS)
    args = tmp_path / "args.npz"
    np.savez(args, arg0=np.array([8, 9], F32), arg1=np.array(True))
    out = tmp_path / "out.npz"
    infeed = save(tmp_path, **MIXED)
    run = ["run", module, "--backend", "reference", "--args", str(args), "--infeed", infeed, "--outfeed", str(out)]
    assert status_of(*run) == 0
    found = load(out)
    assert found["outfeed2.0@0"] == 0x4040  # 3.0
    assert {k: v.dtype.name for k, v in found.items()} == {
        "outfeed0.0@0": "float32",
        "outfeed1.0@0": "int32",
        "outfeed2.0@0": "uint16",
    }


BAD: list[tuple[dict[str, Any], str]] = [
    ({"infeed0_0": np.zeros(3, F32)}, r"item 0 of device 0, leaf 0, has sizes \[3\]"),
    ({"infeed0_0": np.zeros(4, np.float64)}, "leaf 0, is float64, the program takes f32"),
    ({"infeed0_0": np.zeros(4, F32), "infeed0_1": np.zeros(4, F32)}, r"item 0 of device 0 has 2 leaves"),
    ({"infeed1_0": np.zeros(4, F32)}, "holds infeed1 for device 0, but no infeed0.0@0"),
    ({"infeed0_1": np.zeros(4, F32)}, "holds infeed0 for device 0, but no infeed0.0@0"),
    ({"infeed0_0__2": np.zeros(4, F32)}, "holds infeed0.0@2, but no program with an infeed runs on device 2"),
    ({"infeed00_0": np.zeros(4, F32)}, "'infeed00.0' is no key; keys are infeed0.0@0, or infeed0.0 for all devices"),
    ({"arg0": np.zeros(4, F32)}, "'arg0' is no key"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD, ids=[m for _, m in BAD])
def test_what_does_not_fit_is_refused_before_anything_runs(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    world = read_world([write(tmp_path, "sums.hlo", sums(3))], None, None)
    with pytest.raises(ArgumentError, match=message):
        read_feeds(world, save(tmp_path, **arrays), keeps=False)


def test_several_infeeds_are_named_where_none_takes_an_item(tmp_path: Path) -> None:
    world = read_world([write(tmp_path, "takers.hlo", TAKERS)], None, None)
    wanted = r"is \(int8\[2\]\); the program's infeeds take .*\(u8\[3\], \(pred\[\]\)\) or bf16\[\]"
    with pytest.raises(ArgumentError, match=wanted):
        read_feeds(world, save(tmp_path, infeed0_0=np.zeros(2, np.int8)), keeps=False)


def test_narrow_integers_are_read_with_their_sign(tmp_path: Path) -> None:
    world = read_world([write(tmp_path, "echo.hlo", echo("s4[2]"))], None, None)
    feeds = read_feeds(world, save(tmp_path, infeed0_0=np.array([15, 7], np.uint8)), keeps=False)
    assert [int(n) for n in feeds.given[0][0][0]] == [-1, 7]


def test_a_device_s_own_items_come_before_those_for_all(tmp_path: Path) -> None:
    world = read_world([write(tmp_path, "echo.hlo", echo("s32[]"))], 2, None)
    feeds = read_feeds(
        world, save(tmp_path, infeed0_0=np.int32(1), infeed1_0=np.int32(2), infeed1_0__1=np.int32(3)), keeps=False
    )
    assert {d: [int(item[0]) for item in items] for d, items in feeds.given.items()} == {0: [1, 2], 1: [1, 3]}


def test_the_streams_of_a_program_are_found_wherever_they_stand() -> None:
    uses = uses_of(parse_module(TAKERS))
    assert [str(shape) for shape in uses[INFEED].shapes] == ["(u8[3], (pred[]))", "bf16[]", "f32[2]", "s32[]"]
    assert not uses[INFEED].in_order
    assert len(uses[OUTFEED].shapes) == 4
    channels = uses_of(parse_module(CHANNELS))
    assert set(channels) == {StreamKey(StreamKind.RECV, 3), StreamKey(StreamKind.SEND, 0)}
    assert channels[StreamKey(StreamKind.SEND, 0)].in_order


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_on_a_cluster_as_on_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = write(tmp_path, "sums.hlo", sums(50, header=", replica_count=2"))
    infeed, out, other = save(tmp_path, **numbered(205, 2)), tmp_path / "out.npz", tmp_path / "other.npz"
    files = ("--infeed", infeed, "--outfeed", str(out))
    status, text, _ = call(capsys, "run", module, *files, "--compare", "reference", "--repeat", "4", "--json")
    assert status == 0
    printed = json.loads(text)
    assert printed["infeeds"] == [{"device": d, "items": 205, "left": 5} for d in range(2)]
    assert [c["fits"] for c in printed["comparisons"]] == [True]
    again = ["run", module, "--infeed", infeed, "--outfeed", str(other), "--backend", "reference", "--repeat", "4"]
    assert status_of(*again) == 0
    ours, theirs = load(out), load(other)
    assert len(ours) == 400
    assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_on_a_cluster_the_end_of_a_stream_keeps_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write(tmp_path, "sums.hlo", sums(50))
    out = tmp_path / "out.npz"
    items = save(tmp_path, **numbered(7, 1))
    status, _, errors = call(capsys, "run", module, "--infeed", items, "--outfeed", str(out))
    assert status == 1
    assert "stream-end: f on device 0 wants item 7: the infeed was closed after 7 items" in errors
    assert sorted(load(out)) == [f"outfeed{n}.0@0" for n in range(7)]
