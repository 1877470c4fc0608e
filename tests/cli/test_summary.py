"""The summary of a run: the results of devices that differ, and counts in words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distxla.cli.main import main
from distxla.cli.summary import duration
from distxla.wording import counted
from tests.cli.called import call

ONE_PLUS_BOUND = """ENTRY main {{
  r = u32[] replica-id()
  bound = u32[] constant({bound})
  m = u32[] minimum(r, bound)
  b = u32[5] broadcast(m), dimensions={{}}
  ROOT t = (u32[5], u32[]) tuple(b, bound)
}}
"""


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        main(["run", *args, "--backend", "reference"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  results"))
    last = next(number for number, line in enumerate(lines) if line.startswith("  times"))
    return [line.split(", crc32")[0] for line in lines[first:last]]


@pytest.mark.parametrize(
    ("bound", "replicas", "values"),
    [
        (0, 1, ["0 0 0 0 … (device 0)"]),
        (0, 3, ["0 0 0 0 … (the same on all devices)"]),
        (1, 4, ["0 0 0 0 … (device 0)", "1 1 1 1 … (devices 1-3)"]),
        (9, 3, ["0 0 0 0 … (device 0)", "1 1 1 1 … (device 1)", "2 2 2 2 … (device 2)"]),
        (3, 6, [*(f"{d} {d} {d} {d} … (device {d})" for d in range(3)), "… and 1 other value on devices 3-5"]),
        (9, 8, [*(f"{d} {d} {d} {d} … (device {d})" for d in range(3)), "… and 5 other values on devices 3-7"]),
    ],
)
def test_values_of_devices_that_differ_are_shown(
    bound: int, replicas: int, values: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(ONE_PLUS_BOUND.format(bound=bound))
    lines = printed(capsys, str(path), "--replicas", str(replicas))
    same = "the same on all devices" if replicas > 1 else "device 0"
    assert lines[0] == f"  results    out0   u32[5]  {values[0]}"
    assert lines[1:-1] == [" " * 28 + value for value in values[1:]]
    assert lines[-1] == f"             out1   u32[]   {bound} ({same})"


def test_equal_bytes_of_other_sizes_are_other_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, args = tmp_path / "m.hlo", tmp_path / "args.npz"
    path.write_text("ENTRY main {\n  x = f32[<=4] parameter(0)\n  ROOT y = f32[<=4] negate(x)\n}\n")
    np.savez(args, **{"arg0@0": np.zeros(0, np.float32), "arg0@1": np.ones(3, np.float32)})
    lines = printed(capsys, str(path), "--replicas", "2", "--args", str(args))
    assert lines == ["  results    out0   f32[<=4]  no elements (device 0)", " " * 30 + "-1 -1 -1 (device 1)"]


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [(1, "process", "1 process"), (2, "process", "2 processes"), (1, "item", "1 item"), (0, "item", "0 items")],
)
def test_counts(count: int, what: str, text: str) -> None:
    assert counted(count, what) == text


@pytest.mark.parametrize(("seconds", "text"), [(2e-6, "2 µs"), (0.0123, "12.3 ms"), (4.561, "4.56 s")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


VALUES = """HloModule values, replica_count=3
ENTRY main {
  x = f32[2] parameter(0)
  r = u32[] replica-id()
  one = u32[] constant(1)
  m = u32[] minimum(r, one)
  h = bf16[2] convert(x)
  c = c64[] constant((1, -2))
  n = s4[] constant(-3)
  p = pred[1,2] constant({{true, false}})
  e = f32[0] constant({})
  ROOT t = (u32[], f32[2], bf16[2], c64[], s4[], pred[1,2], f32[0]) tuple(m, x, h, c, n, p, e)
}
"""


def test_json_has_the_values_where_they_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.hlo").write_text(VALUES)
    np.savez(tmp_path / "args.npz", arg0=np.array([0.5, -np.inf], np.float32))
    run = ["run", str(tmp_path / "m.hlo"), "--args", str(tmp_path / "args.npz"), "--backend", "reference", "--json"]
    found = json.loads(call(capsys, *run, "--values")[1])["results"]
    assert found[0]["values"] == [{"devices": [0], "value": 0}, {"devices": [1, 2], "value": 1}]
    everywhere = [0.5, "-inf"], [0.5, "-inf"], [1.0, -2.0], -3, [[True, False]], []
    assert [leaf["values"] for leaf in found[1:]] == [[{"devices": [0, 1, 2], "value": v}] for v in everywhere]
    assert all("values" not in leaf for leaf in json.loads(call(capsys, *run)[1])["results"])
    status, _, errors = call(capsys, *run[:-1], "--values")
    assert (status, errors.splitlines()[0]) == (2, "error: usage: --values needs --json")
