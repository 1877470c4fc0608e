"""`distxla cache` shows and clears the cache; a run goes on without an unsafe folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distxla.cli.main import main
from distxla.compiler.cache_folder import CacheFolder

KEY = "5" * 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheFolder:
    monkeypatch.setenv("DISTXLA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("DISTXLA_CACHE_SIZE", "2M")
    return CacheFolder(tmp_path / f"distxla-cache-{os.geteuid()}", 2 << 20)


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["cache", *args])
    return ended.value.code, *capsys.readouterr()


def test_it_shows_and_clears(folder: CacheFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys) == (0, f"{folder.path}: 0 entries, 0 B of 2 MiB\n", "")
    assert not folder.path.exists()
    folder.write(KEY, bytes(974))
    assert call(capsys) == (0, f"{folder.path}: 1 entry, 1 KiB of 2 MiB\n", "")
    assert call(capsys, "--clear") == (0, f"{folder.path}: removed 1 entry, 1 KiB\n", "")
    assert folder.read(KEY) is None


def test_a_size_of_zero_is_called_no_cache(
    folder: CacheFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_SIZE", "0")
    assert call(capsys) == (0, f"{folder.path}: 0 entries, 0 B; DISTXLA_CACHE_SIZE=0: no cache is used\n", "")


def test_it_shows_and_clears_as_json(folder: CacheFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write(KEY, bytes(974))
    common = {"folder": str(folder.path), "limit_bytes": 2 << 20, "refused": None}
    assert json.loads(call(capsys, "--json")[1]) == {**common, "programs": 1, "bytes": 1024}
    removed = json.loads(call(capsys, "--json", "--clear")[1])
    assert removed == {**common, "removed_programs": 1, "removed_bytes": 1024}


def test_an_unsafe_folder_is_shown_and_not_cleared(folder: CacheFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write(KEY, bytes(974))
    folder.path.chmod(0o777)
    reason = "others may write to it (mode 0777)"
    assert call(capsys) == (0, f"{folder.path}: not used: {reason}\n", "")
    status, printed, errors = call(capsys, "--clear")
    assert (status, printed) == (2, "")
    assert errors == f"error: argument: the cache folder {folder.path} cannot be cleared: {reason}\n"
    assert (folder.path / f"{KEY}.program").exists()


def test_a_wrong_size_is_a_mistake(
    folder: CacheFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTXLA_CACHE_SIZE", "much")
    status, _, errors = call(capsys)
    assert status == 2
    assert errors.startswith("error: argument: DISTXLA_CACHE_SIZE: expected a number of bytes")


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_run_goes_on_without_an_unsafe_folder(folder: CacheFolder, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, x) }\n")
    folder.path.mkdir(mode=0o700)
    folder.path.chmod(0o777)
    distxla = str(Path(sys.executable).with_name("distxla"))
    run = subprocess.run([distxla, "run", str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == (
        f"note: the cache folder {folder.path} is not used: others may write to it (mode 0777); set DISTXLA_CACHE_DIR\n"
    )
    assert list(folder.path.iterdir()) == []
