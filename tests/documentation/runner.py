"""Runs the blocks of a page, in a folder of its own: see `blocks`."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from sybil.evaluators.python import PythonEvaluator

from distxla.cli.main import main
from distxla.errors import DistxlaError
from tests.documentation.blocks import ROOT, Block, assert_agrees, commands, sessions

# what a shell would have to interpret
SHELL = re.compile(r"[|&;<>$(]")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


class Runner:
    """folder: where the page's blocks run, and where its files are.  skipped: places that the tests could not run.
    printed: by the last block.  setup: hidden code that the next block's process begins with."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        (folder / "examples").symlink_to(ROOT / "examples")
        self.capsys = capsys
        self.printed: str | None = None
        self.setup = ""
        self.skipped: list[str] = []
        self._python = PythonEvaluator()

    def run(self, block: Block) -> None:
        """Do what the block's language, and the line above it, ask for."""
        if block.not_run or (block.needs and importlib.util.find_spec(block.needs) is None):
            self.skipped.append(block.place)
            self.printed = None
        elif block.file is not None and not block.follows:
            (self.folder / block.file).write_text(block.source)
            self.printed = None
        elif block.language == "text":
            if block.follows and self.printed is not None:
                assert_agrees(block.source, self.printed, block.place)
        else:
            self.printed = {"python": self.python, "sh": self.shell, "console": self.console}[block.language](block)

    def python(self, block: Block) -> str:
        """Run it; an error of distxla's ends the block, and counts as printed."""
        source, self.setup = self.setup + block.source, ""
        if "os.environ" in source:
            if block.hidden:
                self.setup = source
                return ""
            return self._process([sys.executable, "-c", source], 0, block.place)
        error = ""
        try:
            self._python(block.example)
        except DistxlaError as raised:
            error = "".join(traceback.format_exception_only(raised))
        captured = self.capsys.readouterr()
        return captured.out + captured.err + error

    def shell(self, block: Block) -> str:
        return "".join(self.command(line, block.place) for line in commands(block.source))

    def console(self, block: Block) -> None:
        for command, shown in sessions(block.source):
            assert_agrees(shown, self.command(command, block.place), block.place)

    def command(self, line: str, place: str) -> str:
        """Run one line of a shell. Returns what it prints: first stderr, whose notes come before results."""
        found = re.search(r"# exit status (\d+)$", line)
        status = int(found[1]) if found else 0
        line = re.sub(r"\s+#.*", "", line)
        words = shlex.split(line)
        if words[0] == "make":
            # the repository's own targets: that they exist, and what they would do
            return self._process(["make", "--dry-run", "-C", str(ROOT), *words[1:]], status, place)
        if words[0] != "distxla" or SHELL.search(line):
            return self._process(["bash", "-c", line], status, place)
        args = [name for word in words[1:] for name in (sorted(glob.glob(word)) if "*" in word else []) or [word]]
        with pytest.raises(SystemExit) as ended:
            main(args)
        captured = self.capsys.readouterr()
        assert (ended.value.code or 0) == status, f"{place}: {line}\n{captured.err}{captured.out}"
        return captured.err + captured.out

    def _process(self, command: list[str], status: int, place: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
        environment |= {"PATH": PATH, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert run.returncode == status, f"{place}: {command}\n{run.stderr}{run.stdout}"
        return run.stderr + run.stdout
