"""Which targets .ci/run adds for a change (.ci/more_targets.py)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.ci.scripts import FOLDER, ROOT, script

MORE = script("more_targets")
NOON = 1_700_000_000


class Repository:
    """A temporary one. hours: those of a commit's date, after noon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet")

    def git(self, *arguments: str, hours: float = 0) -> str:
        date = f"{NOON + int(hours * 3600)} +0000"
        environment = {f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": "/dev/null"}
        environment |= {"PATH": os.environ["PATH"]}
        done = subprocess.run(["git", *arguments], cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, path: str, hours: float) -> str:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(hours))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", path, hours=hours)
        return self.git("rev-parse", "HEAD")


def test_the_newest_commits_are_those_of_six_hours(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit("old", hours=0)
    base = repository.commit("before", hours=1)
    first = repository.commit("a/b.py", hours=3)
    repository.commit("c d.py", hours=7.5)
    assert MORE.base(tmp_path, None) == base
    assert MORE.changed(tmp_path, base) == ["a/b.py", "c d.py"]
    assert MORE.base(tmp_path, first[:10]) == first
    repository.git("mv", "a/b.py", "e.py")
    assert MORE.changed(tmp_path, first) == ["a/b.py", "c d.py", "e.py"]


def test_without_a_base_nothing_is_chosen(tmp_path: Path) -> None:
    """Of a shallow clone, a young one, or none, and where CI_BASE names no commit."""
    (tmp_path / "whole").mkdir()
    repository = Repository(tmp_path / "whole")
    repository.commit("a", hours=0)
    repository.commit("b", hours=9)
    repository.git("clone", "--quiet", "--depth=1", f"file://{tmp_path}/whole", str(tmp_path / "shallow"))
    with pytest.raises(RuntimeError, match="no commit is 6 hours older than HEAD; CI_BASE can name one"):
        MORE.base(tmp_path / "shallow", None)
    with pytest.raises(RuntimeError, match=r"git rev-parse: .*Needed a single revision"):
        MORE.base(tmp_path / "whole", "no-such-branch")
    with pytest.raises(RuntimeError, match="git log: "):
        MORE.base(tmp_path, None)


def test_a_target_is_chosen_by_its_paths() -> None:
    text = "# a comment\n\na/b c.py : simulate\nd : chaos CHAOS='--count 20'\ne : simulate\n"
    assert MORE.chosen(text, ["a/b/x.py"]) == ["simulate"]
    assert MORE.chosen(text, ["c.py", "d/x", "e/x"]) == ["simulate", "chaos CHAOS='--count 20'"]
    assert MORE.chosen(text, ["a/bc.py", "a", "x/d"]) == []
    with pytest.raises(ValueError, match="expected PATHS : TARGET, found 'simulate'"):
        MORE.rules("simulate\n")


def test_the_paths_and_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for paths, target in MORE.rules((FOLDER / "more").read_text()):
        assert re.search(rf"^{target.split()[0]}:", makefile, re.MULTILINE), target
        for path in paths:
            assert (ROOT / path).exists(), path
            assert (ROOT / path).resolve() == ROOT / path, f"{path}: git knows it by another name"
