"""Outside of targets/ no file knows a processor: what is one's own stands in its target's folder."""

from __future__ import annotations

import re
from pathlib import Path

import distxla

PACKAGE = Path(distxla.__file__).parent
FOLDERS = (PACKAGE, (PACKAGE / "scheduler").resolve(), (PACKAGE / "collectives").resolve())
WORDS = {
    "an object format": r"\bELF\b|\.eh_frame\b|\bR_X86_64",
    "a processor": r"\bx86(?!_64\b)|\bx86-64\b|\bx86_64\b|\bamd64\b|\baarch64\b|\barm64\b|/proc/cpuinfo",
    "an instruction set": r"\b(avx|sse|amx|bmi|fma3|vnni|neon|sve)\w*\b",
    "an instruction": r"\b(rdtscp?|[lsm]fence|pause|cpuid|movnt\w*|vzeroupper)\b",
    "a counter of one processor": r"time.?stamp counter|readcyclecounter",
    "inline assembler": r"\bInlineAsm\b|asm sideeffect|\bsyscall\b",
    "a system call's number": r"\b_?SYS_\w+|\b__NR_\w+|\bFUTEX_(WAIT|WAKE)\b",
    "a library's file or symbol": r"\blib(m|c|openblas)\.so|\bscipy[-_]\w*|\b(OPENBLAS|OMP)_\w+",
    "the width of a vector": r"VectorType\([^()]*,\s*\d+\)|\b(128|256|512)-bit\b|\bvectors? of (128|256|512)\b",
}


def files() -> list[Path]:
    found = {path.resolve() for folder in FOLDERS for path in folder.rglob("*.py")}
    return sorted(path for path in found if (PACKAGE / "targets").resolve() not in path.parents)


def named(folder: Path | None = None) -> list[tuple[str, str, str]]:
    """(kind, what is found, file and line) for every word of WORDS in a folder, or in all files outside of targets/."""
    found = []
    for path in files() if folder is None else sorted(folder.rglob("*.py")):
        text = path.read_text()
        for kind, pattern in WORDS.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                found.append((kind, match[0], f"{path}:{text.count(chr(10), 0, match.start()) + 1}"))
    return found


def test_files_are_found() -> None:
    assert len(files()) > 450


def test_no_file_outside_the_targets_names_a_processor() -> None:
    """Where this fails: ask the target (targets/target.py, targets/code.py), and let x86_64/ answer."""
    assert [f"{kind}: {what!r} in {place}" for kind, what, place in named()] == []


def test_each_word_is_used_by_a_target() -> None:
    """So the patterns match what they are meant to."""
    assert {kind for kind, _, _ in named(PACKAGE / "targets" / "x86_64")} == set(WORDS)
