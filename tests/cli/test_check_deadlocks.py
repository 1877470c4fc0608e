"""`distxla check` of programs that deadlock, that may, and that don't: what it prints, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.called import call
from tests.deadlock_programs import NAMED

CYCLE = """\
a.hlo:6:3: error: deadlock: device 0 waits in rd (a.hlo:6:3) for device 1, which waits in rd (b.hlo:6:3) for device 0: \
neither can go on
      rd = (f32[4], token[]) recv-done(c), channel_id=1
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  device 0 waits in rd (a.hlo:6:3) for device 1: recv-done, channel 1, round 1
  device 1 waits in rd (b.hlo:6:3) for device 0: recv-done, channel 2, round 1
  2 of 2 devices can never end
  cycle: 0 -> 1 -> 0
  hint: move s (b.hlo:7:3) before rd (b.hlo:6:3) on device 1, or move s (a.hlo:7:3) before rd (a.hlo:6:3) on device 0; \
one of these is enough
"""
WARNING = """\
a.hlo:30:3: warning: whether all devices go on can't be known before the run
      w = (s32[], s32[], f32[4]) while(q), condition=w_more, body=w_body
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  w (a.hlo:30:3) is decided by f (a.hlo:26:3): how many iterations it runs may differ between devices, and u \
(a.hlo:12:3) inside needs others (devices 0, 1)
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Writes a case's programs into the current folder; the arguments that name them."""
    monkeypatch.chdir(tmp_path)

    def write(name: str) -> list[str]:
        case, found = NAMED[name], []
        for k, (devices, text) in enumerate(case.programs):
            path = Path(f"{chr(ord('a') + k)}.hlo")
            path.write_text(text)
            found.append(f"{path}@{','.join(map(str, devices))}" if len(case.programs) > 1 else str(path))
        return [*found, "--replicas", str(case.replicas)]

    return write


def test_a_cycle_through_two_programs(files, capsys) -> None:  # type: ignore[no-untyped-def]
    status, printed, errors = call(capsys, "check", *files("recv_done_before_send_on_both_sides"))
    assert (status, errors) == (3, CYCLE)
    assert "a.hlo: " in printed
    assert "  ok\n" not in printed


def test_what_only_the_run_tells_is_a_warning(files, capsys) -> None:  # type: ignore[no-untyped-def]
    for options, expected in ([], 0), (["--strict"], 3):
        status, printed, errors = call(capsys, "check", *options, *files("loops_by_infeed"))
        assert (status, errors) == (expected, WARNING)
        assert ("  ok\nwhat communicates: " in printed) is (expected == 0)


def test_the_users_own_source_line_once(files, capsys) -> None:  # type: ignore[no-untyped-def]
    path = Path(files("a_collective_in_one_branch_only")[0])
    metadata = 'metadata={op_name="jit(step)/psum" source_file="train.py" source_line=42}'
    path.write_text(path.read_text().replace("to_apply=sum", f"to_apply=sum, {metadata}", 1))
    status, _, errors = call(capsys, "check", str(path), "--replicas", "3")
    assert status == 3
    assert errors.count("train.py:42") == 1
    assert "    from train.py:42" not in errors
    assert (
        "  devices 1, 2 wait in c (a.hlo:13:8) for device 0: all-reduce, group {0,1,2}, round 1, from train.py:42 "
        "(jit(step)/psum)"
    ) in errors


def test_what_is_safe_says_so(files, capsys) -> None:  # type: ignore[no-untyped-def]
    for options in ([], ["--strict"]):
        status, printed, errors = call(capsys, "check", *files("posted_early"), *options)
        assert (status, errors) == (0, "")
        assert "\ndeadlock: none can happen on the 2 devices\n" in printed


@pytest.mark.parametrize(
    ("name", "status", "outcome"),
    [("posted_early", 0, "safe"), ("loops_by_infeed", 0, "unknown"), ("loops_by_device", 3, "deadlock")],
)
def test_the_verdict_as_data(name: str, status: int, outcome: str, files, capsys) -> None:  # type: ignore[no-untyped-def]
    found, printed, _ = call(capsys, "check", "--json", *files(name))
    data = json.loads(printed)
    assert (found, data["outcome"]) == (status, outcome)
    if outcome == "deadlock":
        blocked = data["diagnosis"]["blocked"][0]
        assert (blocked["device"], blocked["instruction"]) == (1, "u")
        assert blocked["needs"] == [{"device": 0, "what": "enter round 3 of devices 0, 1"}]
    if outcome == "unknown":
        assert data["diagnosis"]["undecided"][0]["cause"]["instruction"] == "f"


def test_rules_of_xla_are_notes(files, capsys) -> None:  # type: ignore[no-untyped-def]
    Path("n.hlo").write_text(
        "HloModule m, is_scheduled=true\nENTRY main {\n  x = f32[4] parameter(0)\n  t = token[] after-all()\n"
        "  r = (f32[4], u32[], token[]) recv(t), channel_id=0, "
        'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}\n'
        "  s = (f32[4], u32[], token[]) send(x, t), channel_id=0, "
        'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}\n'
        "  rd = (f32[4], token[]) recv-done(r), channel_id=0\n  sd = token[] send-done(s), channel_id=0\n"
        "  ROOT y = f32[4] get-tuple-element(rd), index=0\n}\n"
    )
    status, printed, _ = call(capsys, "check", "n.hlo", "--replicas", "2")
    assert status == 0
    assert "  note: XLA for GPUs refuses r (n.hlo:5:3): its pairs form a cycle\n" in printed
    assert "\ndeadlock: none can happen on the 2 devices\n" in printed


SENDS = """ENTRY main {
  x = f32[4] parameter(0)
  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id=7
  ROOT d = token[] send-done(s), channel_id=7
}
"""
RECEIVES = """ENTRY main {
  t = token[] after-all()
  r = (f32[8], u32[], token[]) recv(t), channel_id=7
  ROOT d = (f32[8], token[]) recv-done(r), channel_id=7
}
"""


@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        (["s.hlo@0,1"], "deadlock", "no program of the run has a recv on channel 7"),
        (["s.hlo@0", "r.hlo@1"], "mismatch", "s (s.hlo:4:3) is of f32[4], r (r.hlo:3:3) of f32[8], on channel 7"),
    ],
)
def test_the_verdict_on_what_is_refused(  # type: ignore[no-untyped-def]
    names: list[str], kind: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.hlo").write_text(SENDS)
    Path("r.hlo").write_text(RECEIVES)
    status, printed, errors = call(capsys, "check", "--json", *names)
    data = json.loads(printed)
    assert (status, errors, data["outcome"]) == (3, "", "deadlock")
    diagnosis = data["diagnosis"]
    assert (diagnosis["location"]["line"], diagnosis["channel"], data["devices"]) == (4, 7, 2)
    assert diagnosis["kind"] == ("mismatch" if kind == "mismatch" else "unmatched")
    assert diagnosis["blocked"] == []
    assert data["text"].startswith(f"{kind}: ")
    assert said in data["text"]


def test_the_channel_and_the_text_of_a_deadlock_as_data(files, capsys) -> None:  # type: ignore[no-untyped-def]
    data = json.loads(call(capsys, "check", "--json", *files("recv_done_before_send_on_both_sides"))[1])
    assert data["diagnosis"]["channel"] == 1
    assert data["text"].splitlines()[0] == CYCLE.splitlines()[0].removeprefix("a.hlo:6:3: error: ")


def test_other_failures_as_data(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "bad.hlo"
    path.write_text("ENTRY main { x = f32[ parameter(0) }")
    status, printed, errors = call(capsys, "check", "--json", str(path))
    found = json.loads(printed)
    assert (status, found["error"]["code"], found["error"]["exit_status"]) == (2, "syntax", 2)
    assert errors.startswith(f"{path}:1:")


def test_ok_is_said_only_where_all_programs_can_be_run(  # type: ignore[no-untyped-def]
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.hlo").write_text("ENTRY main { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }")
    Path("bad.hlo").write_text(
        'ENTRY main { x = f32[] parameter(0)\n ROOT r = f32[] custom-call(x), custom_call_target="nobody" }'
    )
    status, printed, _ = call(capsys, "check", "good.hlo@0", "bad.hlo@1")
    assert status == 2
    assert "  r: " in printed
    assert "  ok\n" not in printed
    status, printed, _ = call(capsys, "check", "--json", "good.hlo@0", "bad.hlo@1")
    refused = json.loads(printed)["refused"]
    assert (status, [(each["program"], each["instruction"]) for each in refused]) == (2, [("bad.hlo", "r")])
