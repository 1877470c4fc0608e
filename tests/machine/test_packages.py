"""The version of a package is that of its metadata."""

from __future__ import annotations

import sys
from importlib.metadata import distributions, version
from pathlib import Path

import pytest

from distxla.machine.packages import installed_version


def test_versions_are_those_of_the_metadata() -> None:
    names = {found.name for found in distributions()}
    assert {"ray", "numpy", "llvmlite", "scipy-openblas32"} & names
    assert {name: installed_version(name) for name in names} == {name: version(name) for name in names}


def test_names_may_be_spelled_in_any_way() -> None:
    assert installed_version("ML.dtypes") == version("ml_dtypes")


def test_a_package_that_is_not_installed_has_none() -> None:
    assert installed_version("no-such-package") is None


def test_the_first_folder_of_the_path_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, found in (("first", "1.5"), ("second", "2.0")):
        (tmp_path / folder / f"two_words-{found}.dist-info").mkdir(parents=True)
    (tmp_path / "first" / "two_words_more-7.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "none"), str(tmp_path / "first"), str(tmp_path / "second")])
    assert installed_version("two-words") == "1.5"


def test_a_folder_with_two_versions_is_left_to_the_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ("1.5", "1.6"):
        (tmp_path / f"two_words-{found}.dist-info").mkdir()
        (tmp_path / f"two_words-{found}.dist-info" / "METADATA").write_text(f"Name: two-words\nVersion: {found}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_version("two-words") == version("two-words")
