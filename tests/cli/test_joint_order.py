"""Programs whose text would deadlock, but another order of their instructions doesn't: `check` and `run` take that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distxla.cli.main import main
from tests.cli.called import call
from tests.deadlock_programs import GOT, NAMED, SCHEDULED, SUM, alone, recv, recv_done, reduce, send, send_done

MOVED = """\
schedule: 1 instruction is executed earlier than in the text, where devices would wait for each other for ever
  s (b.hlo:6:3) before rd (b.hlo:5:3)
deadlock: none can happen on the 2 devices
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Both programs receive before they send, and are not scheduled."""
    monkeypatch.chdir(tmp_path)
    for name, (_, text) in zip("ab", NAMED["recv_done_before_send_on_both_sides"].programs, strict=True):
        Path(f"{name}.hlo").write_text(text.removeprefix(SCHEDULED))
    return ["a.hlo@0", "b.hlo@1"]


def test_check_says_what_moves(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, errors = call(capsys, "check", *files)
    assert (status, errors) == (0, "")
    assert MOVED in printed


def test_the_moves_as_data(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = call(capsys, "check", "--json", *files)
    found = json.loads(printed)
    assert (status, found["outcome"]) == (0, "safe")
    move = {"program": "b.hlo", "instruction": "s", "location": "b.hlo:6:3"}
    assert found["moves"] == [{**move, "before": "rd", "before_location": "b.hlo:5:3"}]


@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=pytest.mark.cluster)])
def test_they_run(files: list[str], backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, errors = call(
        capsys, "run", *files, "--backend", backend, "--compare", "reference", "--time-limit", "60"
    )
    assert (status, errors) == (0, "")
    assert "agrees with the reference within tolerance: 2 arrays, 1 leaf on 2 devices" in printed


def test_a_run_says_what_moves(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = ("run", *files, "--backend", "reference", "--time-limit", "60")
    status, printed, _ = call(capsys, *command)
    assert status == 0
    lines = [line for line in printed.splitlines() if line.startswith("  schedule")]
    assert lines == ["  schedule   executed earlier than in the text: s (b.hlo:6:3) before rd (b.hlo:5:3)"]
    _, printed, _ = call(capsys, *command, "--json")
    move = {"program": "b.hlo", "instruction": "s", "location": "b.hlo:6:3"}
    assert json.loads(printed)["moves"] == [{**move, "before": "rd", "before_location": "b.hlo:5:3"}]


def test_a_run_in_the_order_of_the_text_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.hlo").write_text(SUM + "\n" + alone(reduce("ROOT r", "x")))
    command = ("run", "a.hlo", "--replicas", "2", "--backend", "reference", "--time-limit", "60")
    status, printed, _ = call(capsys, *command)
    assert (status, "schedule" in printed) == (0, False)
    assert json.loads(call(capsys, *command, "--json")[1])["moves"] == []


def test_the_schedule_of_one_program_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Also that of one of several programs, whose others are not known, can be seen: as it stands."""
    monkeypatch.chdir(tmp_path)
    pairs = "{{0,1},{1,0}}"
    lines = [recv("c", 1, pairs), recv_done("rd", "c", 1), send("s", 1, pairs), send_done("sd", "s", 1), GOT]
    Path("a.hlo").write_text(alone("\n".join(lines)))
    Path("b.hlo").write_text(NAMED["ring_2"].programs[0][1].removeprefix(SCHEDULED))
    for name, first, second in (("a", b" send(", b" recv-done("), ("b", b" recv-done(", b" send(")):
        with pytest.raises(SystemExit) as ended:
            main(["compile", f"{name}.hlo", "--replicas", "2", "--emit", "schedule"])
        assert ended.value.code == 0
        printed = capsysbinary.readouterr().out
        assert 0 < printed.index(first) < printed.index(second)


def test_a_schedule_that_is_given_stays(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        Path(f"{name}.hlo").write_text(SCHEDULED + Path(f"{name}.hlo").read_text())
    status, printed, errors = call(capsys, "check", *files)
    assert status == 3
    assert "schedule" not in printed + errors
    assert call(capsys, "run", *files, "--backend", "reference", "--time-limit", "60")[0] == 3


def test_data_that_leave_no_order_are_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.hlo").write_text(NAMED["all_reduces_in_different_orders"].programs[0][1])
    status, _, errors = call(capsys, "check", "a.hlo", "--replicas", "4")
    assert status == 3
    assert errors.endswith(
        "  schedule: no order that data dependencies and given schedules allow lets all devices end\n"
    )


def test_rounds_that_two_programs_have_in_different_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where they may change places they do; else it is said before anything starts."""
    monkeypatch.chdir(tmp_path)
    sums = [
        reduce(name, "x").replace("all-reduce(x)", f"all-reduce(x), channel_id={k}") for k, name in ((1, "a"), (2, "b"))
    ]
    for name, lines in (("a", sums), ("b", sums[::-1])):
        Path(f"{name}.hlo").write_text(SUM + "\n" + alone("\n".join([*lines, "ROOT r = f32[4] subtract(a, b)"])))
    status, printed, errors = call(capsys, "check", "a.hlo@0", "b.hlo@1", "--replicas", "2")
    assert (status, errors) == (0, "")
    assert "b (a.hlo:11:3) before a (a.hlo:10:3)\n" in printed
    path = Path("b.hlo")
    path.write_text(path.read_text().replace("channel_id=1", "channel_id=1, control-predecessors={b}"))
    other = Path("a.hlo")
    other.write_text(other.read_text().replace("channel_id=2", "channel_id=2, control-predecessors={a}"))
    status, _, errors = call(capsys, "check", "a.hlo@0", "b.hlo@1", "--replicas", "2")
    assert status == 3
    assert "mismatch: a is round 1 of devices 0, 1 in" in errors
