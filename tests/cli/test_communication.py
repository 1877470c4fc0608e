"""The table at the end of `check`, and the warnings of check, compile and run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.called import call

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def chain(count: int, attributes: str = "channel_id=1") -> str:
    """All-reduces one after the other; the k-th has 8 + 8 k bytes."""
    lines = ["HloModule chain, num_partitions=4", ADD, "ENTRY main { p = f32[2] parameter(0)"]
    for k in range(count):
        lines.append(f"x{k} = f32[{2 + 2 * k}] constant({{{', '.join('1' * (2 + 2 * k))}}})")
        lines.append(f"y{k} = f32[{2 + 2 * k}] all-reduce(x{k}), to_apply=add, {attributes}".rstrip(", "))
    return "\n".join([*lines, "ROOT y = f32[2] copy(p) }", ""])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(printed: str) -> list[list[str]]:
    lines = printed.splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith("what communicates: "))
    return [line.split() for line in lines[head + 1 :]]


def test_a_short_table_has_all_in_the_order_of_the_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.hlo").write_text(chain(8))
    status, printed, errors = call(capsys, "check", "a.hlo")
    assert (status, errors) == (0, "")
    head, *rows = table(printed)
    assert " ".join(head) == "instruction kind groups bytes trips in all source"
    assert [row[0] for row in rows] == [f"y{k}" for k in range(8)]
    assert rows[3] == ["y3", "all-reduce", "{0-3}", "32", "B", "1", "128", "B", "a.hlo:14:1"]


def test_a_long_table_has_the_largest_and_the_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.hlo").write_text(chain(20))
    _, *rows, last = table(call(capsys, "check", "a.hlo")[1])
    assert [row[0] for row in rows] == [f"y{k}" for k in range(19, 11, -1)]
    assert " ".join(last) == "… (20 in all)"
    found = json.loads(call(capsys, "check", "a.hlo", "--json")[1])
    assert [row["instruction"] for row in found["communication"]] == [f"y{k}" for k in range(20)]


def test_what_does_not_communicate_has_no_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.hlo").write_text("HloModule m\nENTRY main { ROOT x = f32[2] parameter(0) }\n")
    status, printed, _ = call(capsys, "check", "a.hlo")
    assert status == 0
    assert "communicates" not in printed
    assert json.loads(call(capsys, "check", "a.hlo", "--json")[1])["communication"] == []


COMMANDS = [("check",), ("compile", "--out", "out.hlo"), ("run", "--backend", "reference")]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_groups_of_one_device_are_warned_of(
    command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.hlo").write_text(chain(3, ""))
    status, _, errors = call(capsys, *command, "a.hlo")
    assert status == 0
    assert errors == (
        "a.hlo:8:1: warning: y0 has groups of one device each among 4 devices, so every device gets its own operand "
        "back; so do 2 more. Without channel_id the ids of its groups are replicas, of which there is one: "
        "channel_id=1 joins the partitions; use_global_device_ids=true and replica_groups=[1,4]<=[4] beside it name "
        "devices one by one\n    y0 = f32[2] all-reduce(x0), to_apply=add\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
    )


def test_json_has_the_warning_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.hlo").write_text(chain(1, ""))
    status, printed, errors = call(capsys, "check", "--json", "a.hlo")
    assert (status, errors) == (0, "")
    (warning,) = json.loads(printed)["warnings"]
    assert warning.startswith("y0 (a.hlo:8:1) has groups of one device each among 4 devices")


@pytest.mark.cluster
@pytest.mark.slow
def test_a_run_on_a_cluster_warns_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.hlo").write_text(chain(1, ""))
    status, _, errors = call(capsys, "run", "a.hlo")
    assert status == 0
    assert errors.count("warning: y0 has groups of one device each") == 1
    assert "DistxlaWarning" not in errors
