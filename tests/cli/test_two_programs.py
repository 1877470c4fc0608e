"""Several programs on disjoint devices from the command line: counts, what is printed and written, comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.called import call

PRODUCER = """HloModule producer
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] multiply(x, x)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(y, t), channel_id=1
  d = token[] send-done(s), channel_id=1
  ROOT r = (f32[2], token[]) tuple(y, d)
}
"""
CONSUMER = """HloModule consumer
ENTRY main {
  z = f32[2] parameter(0)
  n = s32[] parameter(1)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=1
  e = (f32[2], token[]) recv-done(r), channel_id=1
  v = f32[2] get-tuple-element(e), index=0
  w = f32[2] add(v, z)
  ROOT q = (f32[2], s32[]) tuple(w, n)
}
"""


@pytest.fixture
def programs(tmp_path: Path) -> list[str]:
    (tmp_path / "a.hlo").write_text(PRODUCER)
    (tmp_path / "b.hlo").write_text(CONSUMER)
    np.savez(
        tmp_path / "args.npz",
        **{"arg0@0": np.float32([1, 2]), "arg0@1": np.float32([3, 4]), "arg0@2": np.float32([10, 20]),
           "arg0@3": np.float32([30, 40]), "arg1@2": np.int32(7)},
    )  # fmt: skip
    return [f"{tmp_path / 'a.hlo'}@0,1", f"{tmp_path / 'b.hlo'}@2,3", "--args", str(tmp_path / "args.npz")]


@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=pytest.mark.cluster)])
def test_a_producer_and_a_consumer(programs: list[str], backend: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out.npz"
    status, printed, errors = call(
        *(capsys, "run", *programs, "--generate", "--backend", backend, "--out", str(out)),
        *("--compare", "reference", "--repeat", "2"),
    )
    assert (status, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[0] == f"producer ({tmp_path / 'a.hlo'}) on devices 0-1"
    assert lines[1] == f"consumer ({tmp_path / 'b.hlo'}) on devices 2-3"
    assert lines[2] == f"  ran on     4 devices (1 replica x 4 partitions), {backend} backend"
    assert "  arguments  arg1@3 generated from seed 0" in lines
    assert "out0   f32[2]   1 4 (device 0)" in printed
    assert "out0   f32[2]  11 24 (device 2)" in printed
    assert "agrees with the reference within tolerance: 6 arrays, " in printed
    with np.load(out) as file:
        found = {key: file[key].tolist() for key in file.files if key != "out1@3"}
    assert found == {"out0@0": [1, 4], "out0@1": [9, 16], "out0@2": [11, 24], "out0@3": [39, 56], "out1@2": 7}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_argument_that_the_file_lacks_is_not_invented(programs: list[str], backend: str, capsys) -> None:  # type: ignore[no-untyped-def]
    status, printed, errors = call(capsys, "run", *programs, "--backend", backend)
    assert (status, printed) == (2, "")
    assert "args.npz lacks arg1@3, the argument n of s32[] on device 3" in errors
    assert "hint: --generate makes random values for what --args lacks" in errors


def test_check_says_who_sends_to_whom(programs: list[str], capsys) -> None:  # type: ignore[no-untyped-def]
    status, printed, _ = call(capsys, "check", *programs[:2])
    assert status == 0
    *_, channel, verdict, _, head, send, recv = printed.splitlines()
    assert (channel, verdict) == ("channel 1: 0 to 2, 1 to 3", "deadlock: none can happen on the 4 devices")
    assert head.split() == ["instruction", "kind", "groups", "bytes", "trips", "in", "all", "source"]
    assert " send  0 to 2, 1 to 3  8 B    1      16 B    " in send
    assert send.endswith("a.hlo:6:3")
    assert " recv  0 to 2, 1 to 3  0 B    1      0 B     " in recv


def test_json_tells_the_programs_apart(programs: list[str], tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, **{"out0@0": np.float32([1, 4]), "out0@3": np.float32([39, 57])})
    options = ("--generate", "--backend", "reference", "--json", "--expected", str(wrong))
    status, printed, _ = call(capsys, "run", *programs, *options)
    found = json.loads(printed)
    assert status == 1
    assert [(m["name"], m["devices"]) for m in found["modules"]] == [("producer", [0, 1]), ("consumer", [2, 3])]
    assert (found["replicas"], found["partitions"], found["devices"]) == (1, 4, 4)
    assert found["generated"] == ["arg1@3"]
    assert [(r["leaf"], r["shape"], r["devices"]) for r in found["results"]] == [
        (0, "f32[2]", [0, 1]), (1, "token[]", [0, 1]), (0, "f32[2]", [2, 3]), (1, "s32[]", [2, 3]),
    ]  # fmt: skip
    (compared,) = found["comparisons"]
    assert (compared["fits"], compared["differing"]) == (False, [{"leaf": 0, "device": 3}])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.hlo@0,1", "b.hlo"], "with several programs each needs its devices, as in b.hlo@0-3"),
        (["a.hlo@0,1", "b.hlo@1,2"], "device 1 is given to both a.hlo and b.hlo"),
        (["a.hlo@0,1", "b.hlo@2,3", "--partitions", "3"], "device 3 is named, but 1 replica x 3 partitions end at 2"),
        (["a.hlo@0,1", "b.hlo@2"], "2 devices run s (a.hlo:6:3) and 1 run r (b.hlo:6:3), which needs"),
        (["a.hlo@0,1", "b.hlo@2,3", "--expected", "args.npz"], "'arg0@0' is no key; keys are out0@0, or out0 for"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_is_refused(
    programs: list[str], args: list[str], message: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    status, printed, errors = call(capsys, "run", *args, "--backend", "reference")
    assert (status, printed) == (2, "")
    assert message in errors
