"""The recipes of README.md and docs/dumps.md, run as they stand: those whose framework is installed."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distxla.cli.main import main

ROOT = Path(__file__).parent.parent
RECIPES = re.findall(
    r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```\n\n```sh\n(.*?)^```$",
    (ROOT / "docs" / "dumps.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
FIVE_LINES = next(
    body
    for body in re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    if body.startswith("compiled = jax.jit")
)
MODULES = {"JAX": "jax", "PyTorch/XLA": "torch_xla", "TensorFlow": "tensorflow"}


def run_python(program: str, folder: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr


def run_command(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line of a shell, on the reference. Returns what it prints."""
    monkeypatch.chdir(folder)
    distxla, *words = command.split()
    assert distxla == "distxla"
    args = [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]
    with pytest.raises(SystemExit) as ended:
        main([*args, "--backend", "reference"])
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.out + printed.err
    return printed.out


def test_there_is_a_recipe_for_each_framework() -> None:
    assert [name for name, _, _ in RECIPES] == list(MODULES)


@pytest.mark.parametrize(("name", "program", "command"), RECIPES, ids=[name for name, _, _ in RECIPES])
def test_a_recipe_runs_and_gives_the_same_results(
    name: str,
    program: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of JAX, whose recipe goes on with the README's five lines in a folder of their own, both."""
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"{MODULES[name]} is not installed")
    folders = [tmp_path]
    if name == "JAX":
        folders.append(tmp_path / "readme")
        folders[-1].mkdir()
        program += f"os.chdir('readme')\n{FIVE_LINES}np.savez('expected.npz', **by_device('out', compiled(*args)))\n"
    run_python(program, tmp_path)
    for folder in folders:
        printed = run_command(command, folder, monkeypatch, capsys)
        assert "within tolerance" in printed
        assert "generated" not in printed


def test_the_readme_has_five_lines() -> None:
    assert len(FIVE_LINES.splitlines()) == 5
    assert "npz" in FIVE_LINES
