"""The page of a run before it begins."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest

from distxla.cli.main import main
from distxla.diagnosis.facts.blocked import Doing
from distxla.ir.counts import Counts
from distxla.scheduler.deadlocks import examine
from tests.deadlock_programs import NAMED

ENDS_APART = """HloModule apart, num_partitions=2
ENTRY e {
  x = f32[2] parameter(0)
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, PAIRS={{0,1}}}
  d = token[] send-done(s), channel_id=1
  r = (f32[2], u32[], token[]) recv(d), channel_id=2, PAIRS={{1,0}}}
  e = (f32[2], token[]) recv-done(r), channel_id=2
  ROOT o = f32[2] get-tuple-element(e), index=0
}
""".replace("PAIRS", "frontend_attributes={_xla_send_recv_source_target_pairs")


def test_what_only_the_run_decides_is_named() -> None:
    case = NAMED["loops_by_infeed"]
    found = examine(case.modules(), Counts(case.replicas, 1)).diagnosis
    assert found is not None
    assert found.kind == "undecided"
    assert "w (a.hlo:30:3) is decided by f (a.hlo:26:3)" in found.text()
    assert {(device.doing, device.instruction) for device in found.devices} == {(Doing.COMPUTES, "w")}
    assert "<h1>Warning: only the run can tell whether all devices go on</h1>" in found.page()


SENDS = (
    "ENTRY main {\n  x = f32[] parameter(0)\n  t = token[] after-all()\n"
    "  s = (f32[], u32[], token[]) send(x, t), channel_id=1\n  ROOT d = token[] send-done(s), channel_id=1\n}\n"
)


@pytest.mark.parametrize(
    ("name", "options", "status", "headline"),
    [
        ("ring_2", [], 3, "Deadlock: devices 0 and 1 wait for each other"),
        ("ring_2", ["--json"], 3, "Deadlock: devices 0 and 1 wait for each other"),
        ("shapes_that_differ", [], 3, "Mismatch: device 1 does not fit the others"),
        ("loops_by_device", [], 3, "Deadlock: device 1 waits for device 0, which has ended"),
        ("loops_by_infeed", [], 0, "Warning: only the run can tell whether all devices go on"),
        ("", [], 3, "Deadlock: refused before the run</h1>\n<p>no program of the run has a recv on channel 1"),
        ("", ["--json"], 3, "Deadlock: refused before the run</h1>\n<p>no program of the run has a recv on channel 1"),
        ("posted_early", [], 0, None),
    ],
)
def test_check_writes_the_page(
    name: str,
    options: list[str],
    status: int,
    headline: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = NAMED[name].programs if name else [((0, 1), SENDS)]
    files = []
    for k, (devices, text) in enumerate(programs):
        path = Path(f"{'abcdefgh'[k] if name else 's'}.hlo")
        path.write_text(text)
        files.append(f"{path}@{','.join(map(str, devices))}")
    with pytest.raises(SystemExit) as ended:
        main(["check", *files, "--replicas", "2", "--report", "page.html", *options])
    assert (ended.value.code or 0) == status
    said = capsys.readouterr().err
    if headline is None:
        assert "note: there is no report for page.html: all devices go on\n" in said
        assert not Path("page.html").exists()
        return
    assert "note: the report is in page.html\n" in said
    text = Path("page.html").read_text()
    command = shlex.join(["distxla", "check", *files, "--replicas", "2", "--report", "page.html", *options])
    assert f"<dt>command</dt><dd>{html.escape(command)}</dd>" in text
    assert re.search(f"<h1>{re.escape(headline)}", text), re.search("<h1>.*</h1>", text)


def test_a_refusal_and_its_page_say_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ends that don't fit each other: the error is about the first, a note about the second."""
    monkeypatch.chdir(tmp_path)
    Path("s.hlo").write_text(ENDS_APART)
    with pytest.raises(SystemExit) as ended:
        main(["check", "s.hlo", "--report", "page.html"])
    assert ended.value.code == 3
    near = "recv r (s.hlo:7:3) on channel 2 lacks its send, too, but it has the pairs {{1,0}}, s has {{0,1}}"
    said, text = capsys.readouterr().err, html.unescape(Path("page.html").read_text())
    assert (said.count(near), text.count(near)) == (1, 1)
    assert "for s (s.hlo:5:3): the transfer never ends; the recv belongs on device 1</p>" in text
