"""`python .ci/more_targets.py`: prints the targets of .ci/more whose paths the newest commits change, one a line.

The commits since CI_BASE; without it, since the newest one that is 6 hours older than HEAD. The reason goes to stderr.
Where no commit is that old, or git doesn't answer, no target is printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOURS = 6


def git(root: Path, *arguments: str) -> str:
    """What it prints. RuntimeError with its words where it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeError(f"git: {error}") from None
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def base(root: Path, given: str | None) -> str:
    """The commit with which to compare. RuntimeError where there is none."""
    if given:
        return git(root, "rev-parse", "--verify", f"{given}^{{commit}}")
    newest = int(git(root, "log", "-1", "--format=%ct"))
    found = git(root, "rev-list", "-1", f"--before={newest - HOURS * 3600}", "HEAD")
    if not found:
        raise RuntimeError(f"no commit is {HOURS} hours older than HEAD; CI_BASE can name one")
    return found


def changed(root: Path, since: str) -> list[str]:
    """Paths that differ in the working tree, of a moved file both."""
    return git(root, "diff", "--name-only", "--no-renames", since).splitlines()


def rules(text: str) -> list[tuple[list[str], str]]:
    """Paths and target of each line. ValueError for a line that isn't one."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            paths, colon, target = line.partition(" : ")
            if not colon or not paths.split() or not target.strip():
                raise ValueError(f"expected PATHS : TARGET, found {line!r}")
            found.append((paths.split(), target.strip()))
    return found


def chosen(text: str, paths: list[str]) -> list[str]:
    """The targets whose paths are among these or hold one of them; each once, in the order of the lines."""
    found = [
        target
        for folders, target in rules(text)
        if any(path == folder or path.startswith(folder + "/") for path in paths for folder in folders)
    ]
    return list(dict.fromkeys(found))


def main() -> None:
    try:
        since = base(ROOT, os.environ.get("CI_BASE"))
        paths = changed(ROOT, since)
    except RuntimeError as error:
        print(f"no further targets: {error}", file=sys.stderr)
        return
    targets = chosen((ROOT / ".ci" / "more").read_text(), paths)
    print(f"{len(paths)} files differ from {since[:12]}: {len(targets)} further targets", file=sys.stderr)
    for target in targets:
        print(target)


if __name__ == "__main__":
    main()
