"""How the package gets into an environment, and which Python that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_a_script_beside_the_clone_imports_the_package(tmp_path: Path) -> None:
    """There the clone's folder is a candidate for a namespace package of that name."""
    (tmp_path / "distxla").symlink_to(ROOT)
    script = tmp_path / "script.py"
    script.write_text("import distxla\nprint(distxla.parse.__name__)\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("parse_module\n", "")


def _interpreter(path: Path, version: str | None) -> str:
    """A stand-in that answers to `-c PROGRAM VERSION` as an interpreter of that version, or as a shim without one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$3" = "{version}" ] && echo "$0"\n' if version else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("candidates", "found"),
    [
        # a name on PATH that does not run, then one that does; `python3` of any version
        ({"a/python3.13": None, "b c/python3.13": "3.13", "b c/python3": "3.11"}, ["b c/python3.13", "b c/python3"]),
        # the newest release of each version that pyenv has, behind a shim that does not answer
        (
            {
                "a/python3.12": None,
                "pyenv/versions/3.12.9/bin/python": "3.12",
                "pyenv/versions/3.12.10/bin/python": "3.12",
            },
            ["pyenv/versions/3.12.10/bin/python"],
        ),
        # a release that does not run
        (
            {"pyenv/versions/3.13.2/bin/python": None, "pyenv/versions/3.13.1/bin/python": "3.13"},
            ["pyenv/versions/3.13.1/bin/python"],
        ),
        ({"uv/cpython-3.11.4-linux-x86_64-gnu/bin/python": "3.11"}, ["uv/cpython-3.11.4-linux-x86_64-gnu/bin/python"]),
        ({"a/python3": "3.10"}, []),
    ],
)
def test_pythons_that_run_are_found(tmp_path: Path, candidates: dict[str, str | None], found: list[str]) -> None:
    for name, version in candidates.items():
        _interpreter(tmp_path / name, version)
    for tool in ("head", "sort"):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/sh", ROOT / "requirements" / "pythons"],
        env={
            "PATH": f"{tmp_path}/a:{tmp_path}/b c",
            "PYENV_ROOT": f"{tmp_path}/pyenv",
            "UV_PYTHON_INSTALL_DIR": f"{tmp_path}/uv",
        },
        capture_output=True,
        text=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == ([str(tmp_path / name) for name in found], "")


def test_every_python_of_this_machine_answers() -> None:
    lines = subprocess.run([ROOT / "requirements" / "pythons"], capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        assert subprocess.run([line, "-c", "import venv"]).returncode == 0
    assert lines


def test_an_image_gets_all_that_pip_installs() -> None:
    """The build context holds what is listed, so what a package consists of has to be, links' targets included."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    listed = {line[1:] for line in lines if line.startswith("!")}
    links = {path.resolve().relative_to(ROOT).parts[0] for path in (ROOT / "distxla").iterdir() if path.is_symlink()}
    assert lines[0] == "*"
    assert all((ROOT / name).exists() for name in listed)
    assert listed == {"pyproject.toml", "README.md", "requirements", "distxla"} | links
