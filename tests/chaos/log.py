"""What is kept of cases that went wrong: some come once in a hundred runs, and replays may not bring them back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.judgement import Verdict
from tests.chaos.story import Story


def kept(folder: Path, story: Story, verdict: Verdict) -> Path:
    """A new file in the folder with a case, its verdict, what the driver said, and what it wrote to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"seed-{story.case.seed}-case-{story.case.number}"
    number = 1 + sum(1 for _ in folder.glob(f"{stem}-*.txt"))
    path = folder / f"{stem}-{number}.txt"
    lines = [
        str(story.case),
        repr(story.case),
        f"outcome: {verdict.outcome}; wrong: {verdict.wrong}",
        f"struck at {story.struck}; the driver's status: {story.status}; hangs: {story.hang or 'no'}",
        f"left behind: {story.left}; descriptors: {story.grown}",
        "",
        *(json.dumps(event) for event in story.events),
        "",
        story.messages,
    ]
    path.write_text("\n".join(lines))
    return path


__all__ = ["kept"]
