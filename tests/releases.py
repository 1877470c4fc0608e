"""Every tested release of a package in an environment of its own, made in a temporary folder, one after the other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def try_releases(
    packages: Sequence[str], releases: Sequence[str], extras: str, tests: Sequence[str], *, unpinned: Sequence[str] = ()
) -> int:
    """Run the tests with this Python and each release of the packages, all else as pinned; 1 if one does not pass.

    packages: of the same release; the first one is named in the line that each release prints.  extras: of distxla.
    unpinned: of these pip takes a release that goes with the packages.
    """
    failed = 0
    for release in releases:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"distxla-{packages[0]}-") as folder:
            wanted = [f"{package}=={release}" for package in packages]
            why = _tried(wanted, unpinned, extras, tests, Path(folder))
        failed += why is not None
        python = ".".join(map(str, sys.version_info[:2]))
        seconds = time.monotonic() - begin
        print(f"{packages[0]} {release}, Python {python}: {why or 'passes'} ({seconds:.0f} s)", flush=True)
    return int(failed > 0)


def _tried(
    wanted: Sequence[str], unpinned: Sequence[str], extras: str, tests: Sequence[str], folder: Path
) -> str | None:
    """Why the tests do not pass with these; None if they do."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    pins = folder / "pins.txt"
    begins = tuple(pin.partition("==")[0] + "==" for pin in (*wanted, *unpinned))
    lines = (ROOT / "requirements" / "pinned.txt").read_text().splitlines()
    pins.write_text("\n".join([*(line for line in lines if not line.startswith(begins)), *wanted]) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(pins), "-e", f"{ROOT}[{extras}]"]
    for command in (install, [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"status {done.returncode} of {' '.join(command[1:4])}\n{(done.stdout + done.stderr)[-3000:]}"
    return None
