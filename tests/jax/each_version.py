"""Every tested version of JAX in an environment of its own: `python -m tests.jax.each_version [VERSION...]`.

Each runs the tests of partitioning and of inputs, with this Python. The environments are made in a temporary folder,
one after the other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
RELEASES = ("0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.0", "0.12.0.1")
TESTS = ("tests/jax/test_partitioning.py", "tests/jax/test_inputs.py", "tests/jax/test_global_modules.py")


def main(releases: Sequence[str]) -> int:
    """Print a line a version; 1 if one does not pass."""
    failed = 0
    for release in releases or RELEASES:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="distxla-jaxes-") as folder:
            why = _tried(release, Path(folder))
        failed += why is not None
        python = ".".join(map(str, sys.version_info[:2]))
        print(f"jax {release}, Python {python}: {why or 'passes'} ({time.monotonic() - begin:.0f} s)", flush=True)
    return int(failed > 0)


def _tried(release: str, folder: Path) -> str | None:
    """Why the tests do not pass with this version; None if they do."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    pins = folder / "pins.txt"
    lines = (ROOT / "requirements" / "pinned.txt").read_text().splitlines()
    others = [line for line in lines if not line.startswith(("jax==", "jaxlib=="))]
    pins.write_text("\n".join([*others, f"jax=={release}", f"jaxlib=={release}"]) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(pins), "-e", f"{ROOT}[test,jax]"]
    for command in (install, [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"status {done.returncode} of {' '.join(command[1:4])}\n{(done.stdout + done.stderr)[-3000:]}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
