"""The corpus, replayed without the fuzzer; and inputs that break a target's promise become findings."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS, HANG_S, kept, main
from tests.fuzz.findings import Findings, limited_memory, pack, summary, unpack
from tests.fuzz.targets import NAMES, Target, load
from tests.stopwatch import Stopwatch

MOST_BYTES = 1_000_000  # of the corpus


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(120)
def test_kept_inputs(name: str) -> None:
    target = load(name)
    inputs = [path.read_bytes() for path in sorted(kept(name).iterdir())]
    assert inputs
    with limited_memory():
        for data in [*target.seeds(), *inputs]:
            watch = Stopwatch()
            target.check(data)
            assert watch.seconds < HANG_S, f"{data[:200]!r} takes longer than {HANG_S} s"


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)


def _planted(data: bytes) -> None:
    if data == b"key":
        raise KeyError("planted")
    if data == b"memory":
        bytearray(8 << 30)
    if data == b"exit":
        sys.exit(3)


def test_findings_are_written_once_a_place(tmp_path: Path) -> None:
    target = Target(_planted, list, lambda data, choose: None, weight=1, largest=10)
    findings = Findings("planted", target, tmp_path / "found")
    with limited_memory():
        for data in (b"fine", b"key", b"memory", b"exit", b"key"):
            findings.check(data)
    found = {path.read_bytes(): path.with_suffix(".txt") for path in (tmp_path / "found").glob("planted-*[!t]")}
    assert set(found) == {b"key", b"memory", b"exit"}
    assert "KeyError: 'planted'" in found[b"key"].read_text()
    assert "--replay" in found[b"key"].read_text()
    for data, story in found.items():
        *lines, packed = summary(story.with_suffix("")).splitlines()
        assert unpack(packed.rpartition(" ")[2]) == data
        assert "--replay" in lines[-1]


def test_the_summary_of_a_finding_is_short(tmp_path: Path) -> None:
    path = tmp_path / "verifier-crash"  # as the fuzzer itself writes one, without a story
    path.write_bytes(b"x" * 4000)
    assert summary(path) == f"input, for tests.fuzz.findings.unpack: {pack(b'x' * 4000)}"
    path.write_bytes(random.Random(0).randbytes(4000))
    assert summary(path) == ""


def test_without_the_fuzzer_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([]) == 2
    assert capsys.readouterr().err == "the fuzzer is not installed: pip install -e '.[fuzz]', or make fuzz\n"


def test_inputs_are_replayed_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "input"
    path.write_text("ENTRY e { x = f32[] parameter(0) }")
    assert main(["parser", "--replay", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: as promised\n"


@pytest.mark.parametrize("arguments", [["nothing"], ["--replay", "x"], ["parser", "npz", "--replay", "x"]])
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "target" in capsys.readouterr().err
