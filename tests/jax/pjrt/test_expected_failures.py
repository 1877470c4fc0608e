"""The list of JAX's own tests that are expected to fail, and the plugin that reads it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jax.pjrt.expected_failures import LIST, reasons
from tests.jax.pjrt.scripts import ROOT


def test_each_expected_failure_has_a_reason() -> None:
    found = reasons(LIST.read_text())
    assert all(re.fullmatch(r"\w+_test\.py::\w+::\w.*", test) for test in found)
    assert all(len(reason) > 20 for reason in found.values())


def test_a_test_without_a_reason_is_refused() -> None:
    assert reasons("# one\n# more\na\nb\n\n# two\nc\n") == {"a": "one more", "b": "one more", "c": "two"}
    with pytest.raises(ValueError, match="a: no comment above it"):
        reasons("a\n# one")


def test_listed_tests_have_to_fail(tmp_path: Path) -> None:
    bodies = {"a": "assert 0", "b": "assert 0", "c": "pass", "d": "pass"}
    lines = ["class TestIt:", *(f"  def test_{name}(self): {body}" for name, body in bodies.items())]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "some_test.py").write_text("\n".join(lines))
    (tmp_path / "list").write_text("# known\nsome_test.py::TestIt::test_a\nsome_test.py::TestIt::test_c\n")
    plugin = ["-p", "tests.jax.pjrt.expected_failures", "--expected-failures=list"]
    others = ["-p", "no:cacheprovider", "--import-mode=importlib"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *others, "tests/some_test.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert "[XPASS(strict)] known" in done.stdout
