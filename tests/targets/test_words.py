"""Outside of targets/ no file knows a processor: what is one's own stands in its target's folder. What the targets of
processors share, targets/native/, knows the system and its libraries, but no processor."""

from __future__ import annotations

import re
from pathlib import Path

import distxla

PACKAGE = Path(distxla.__file__).parent
FOLDERS = (PACKAGE, (PACKAGE / "scheduler").resolve(), (PACKAGE / "collectives").resolve())
FUTEXES = "/machine/futexes.py"  # calls a system call of the number that it is given
EXTRAS = "/machine/extras.py"  # names packages, as pip does
# a text that every match has, and the pattern, both in small letters: most files don't have the first
WORDS = {
    "an object format": {"elf": r"\belf\b", ".eh_frame": r"\.eh_frame", "r_x86_64": r"\br_x86_64"},
    "a processor": {
        "x86": r"\bx86(?!_64\b)|\bx86-64\b|\bx86_64\b",
        "amd64": r"\bamd64\b",
        "aarch64": r"\baarch64\b",
        "arm64": r"\barm64\b",
        "/proc/cpuinfo": r"/proc/cpuinfo",
    },
    "an instruction set": {
        name: rf"\b{name}\w*\b" for name in ("avx", "sse", "amx", "bmi", "fma3", "vnni", "neon", "sve")
    },
    "an instruction": {
        "rdtsc": r"\brdtscp?\b",
        "fence": r"\b[lsm]fence\b",
        "pause": r"\bpause\b",
        "cpuid": r"\bcpuid\b",
        "movnt": r"\bmovnt\w*\b",
        "vzeroupper": r"\bvzeroupper\b",
    },
    "a counter of one processor": {
        "stamp counter": r"time.?stamp counter",
        "readcyclecounter": r"readcyclecounter",
    },
    "inline assembler": {
        "inlineasm": r"\binlineasm\b",
        "asm sideeffect": r"asm sideeffect",
        "syscall": r"\bsyscall\b",
    },
    "a system call's number": {
        "sys_": r"\b_?sys_\w+",
        "__nr_": r"\b__nr_\w+",
        "futex_wa": r"\bfutex_(wait|wake)\b",
    },
    "a library's file or symbol": {
        ".so": r"\blib(m|c|openblas)\.so",
        "scipy": r"\bscipy[-_]\w*",
        "openblas_": r"\bopenblas_\w+",
        "omp_": r"\bomp_\w+",
    },
    "the width of a vector": {
        "vectortype(": r"vectortype\([^()]*,\s*\d+\)",
        "-bit": r"\b(128|256|512)-bit\b",
        "vector": r"\bvectors? of (128|256|512)\b",
    },
}


def files() -> list[Path]:
    found = {path.resolve() for folder in FOLDERS for path in folder.rglob("*.py")}
    return sorted(path for path in found if (PACKAGE / "targets").resolve() not in path.parents)


def named(folder: Path | None = None) -> list[tuple[str, str, str]]:
    """(kind, what is found, file and line) for every word of WORDS in a folder, or in all files outside of targets/."""
    found = []
    for path in files() if folder is None else sorted(folder.rglob("*.py")):
        text = path.read_text().lower()
        for kind, pattern in ((kind, words[part]) for kind, words in WORDS.items() for part in words if part in text):
            for match in re.finditer(pattern, text):
                found.append((kind, match[0], f"{path}:{text.count(chr(10), 0, match.start()) + 1}"))
    return found


def test_files_are_found() -> None:
    assert len(files()) > 450


def test_no_file_outside_the_targets_names_a_processor() -> None:
    """Where this fails: ask the target (targets/target.py, targets/code.py), and let x86_64/ answer."""
    found = [
        f"{kind}: {what!r} in {place}"
        for kind, what, place in named()
        if FUTEXES not in place and (EXTRAS not in place or what != "scipy-openblas32")
    ]
    assert found == []


def test_what_the_processors_share_names_none_of_them() -> None:
    """Where this fails: ask the processor's traits (native/traits.py), or let x86_64/ add a method."""
    shared = {"an object format", "a library's file or symbol", "inline assembler", "a system call's number"}
    found = [
        f"{kind}: {what!r} in {place}"
        for kind, what, place in named(PACKAGE / "targets" / "native")
        if kind not in shared and what != "/proc/cpuinfo"
    ]
    assert found == []


def test_each_word_is_used_by_a_target() -> None:
    """So the patterns match what they are meant to."""
    folders = (PACKAGE / "targets" / "x86_64", PACKAGE / "targets" / "native")
    assert {kind for folder in folders for kind, _, _ in named(folder)} == set(WORDS)
