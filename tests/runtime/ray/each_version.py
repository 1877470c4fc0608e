"""Every tested version of Ray in an environment of its own: `python -m tests.runtime.ray.each_version [VERSION...]`.

Each runs test_versions.py, with this Python. The environments are made in a temporary folder, one after the other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
RELEASES = (
    *("2.50.1", "2.51.2", "2.52.1", "2.53.0", "2.54.1", "2.55.1", "2.56.1", "2.57.1", "2.58.1", "2.59.0", "2.60.0"),
)
TESTS = "tests/runtime/ray/test_versions.py"


def main(releases: Sequence[str]) -> int:
    """Print a line a version; 1 if one does not pass."""
    failed = 0
    for release in releases or RELEASES:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="distxla-rays-") as folder:
            why = _tried(release, Path(folder))
        failed += why is not None
        python = ".".join(map(str, sys.version_info[:2]))
        print(f"Ray {release}, Python {python}: {why or 'passes'} ({time.monotonic() - begin:.0f} s)", flush=True)
    return int(failed > 0)


def _tried(release: str, folder: Path) -> str | None:
    """Why the tests do not pass with this version; None if they do."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    pins = folder / "pins.txt"
    lines = (ROOT / "requirements" / "pinned.txt").read_text().splitlines()
    pins.write_text("\n".join([*(line for line in lines if not line.startswith("ray==")), f"ray=={release}"]) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(pins), "-e", f"{ROOT}[test]"]
    for command in (install, [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"status {done.returncode} of {' '.join(command[1:4])}\n{(done.stdout + done.stderr)[-3000:]}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
