"""Only distxla/machine/ knows the operating system; what is one processor's under it, targets/ does."""

from __future__ import annotations

import re
from pathlib import Path

import distxla

PACKAGE = Path(distxla.__file__).parent
FOLDERS = (PACKAGE, (PACKAGE / "scheduler").resolve(), (PACKAGE / "collectives").resolve())
KNOW_IT = (PACKAGE / "machine", PACKAGE / "targets" / "native", PACKAGE / "targets" / "x86_64")
# the supervisor runs alone, `python -I -S`: everything waits for it, and it imports nothing of distxla
ALONE = PACKAGE / "runtime" / "ray" / "supervisor.py"
# which open files belong to a cluster, by the begin of their paths
NAMES_PATHS = (PACKAGE / "testing" / "leaks.py", r'"/proc/", ')
WORDS = {
    "a file of the kernel": r"/proc(?:/|\")",
    "a memory file": r"\bmemfd_create\b",
    "a process's descriptor": r"\bpidfd_\w+",
    "an option of the process": r"\bprctl\b",
    "a watch of files": r"\binotify\w*",
    "a mapping": r"\bmmap\.(?:MAP|PROT|MADV)_\w+|\.mprotect\b|\.madvise\b",
    "an action of a signal": r"\bsigaltstack\b|\b_?SA_\w+",
    "the size of a page": r"\b\w*PAGE\w*(?:: \w+)? = 4096\b|\b4095\b|\bPAGE_?SIZE\b",
}


def named(folders: tuple[Path, ...]) -> list[tuple[str, str]]:
    """(kind, text and place) of every word of WORDS in these folders."""
    found = []
    for path in sorted({path.resolve() for folder in folders for path in folder.rglob("*.py")}):
        text = path.read_text()
        if path == NAMES_PATHS[0]:
            text = text.replace(NAMES_PATHS[1], "", 1)
        for kind, pattern in WORDS.items():
            for match in re.finditer(pattern, text):
                place = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
                found.append((kind, f"{match[0]!r} in {place}"))
    return found


def test_no_other_file_knows_the_operating_system() -> None:
    """Where this fails: call a function of distxla/machine/, or add one."""
    allowed = tuple(str(path) for path in (*KNOW_IT, ALONE))
    found = [f"{kind}: {where}" for kind, where in named(FOLDERS) if not where.partition(" in ")[2].startswith(allowed)]
    assert found == []


def test_each_word_is_used_there() -> None:
    """So the patterns match what they are meant to."""
    assert {kind for kind, _ in named(KNOW_IT)} == set(WORDS)


def test_the_supervisor_imports_nothing_of_distxla() -> None:
    assert not re.search(r"^\s*(from|import) distxla", ALONE.read_text(), re.MULTILINE)
