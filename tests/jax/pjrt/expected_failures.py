"""A plugin for pytest in a checkout of JAX: the tests of expected_failures.txt have to fail, each for its reason.

python -m pytest -p tests.jax.pjrt.expected_failures tests/array_test.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

LIST = Path(__file__).with_name("expected_failures.txt")


def reasons(text: str) -> dict[str, str]:
    """By test, as `file_test.py::Class::test`: the comment above it."""
    found: dict[str, str] = {}
    comment: list[str] = []
    is_open = False  # whether the next line of comment goes on with the last one
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            comment = [*(comment if is_open else ()), line.removeprefix("#").strip()]
            is_open = True
        elif not comment:
            raise ValueError(f"{line}: no comment above it says why the test fails")
        else:
            found[line] = " ".join(comment)
            is_open = False
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expected-failures", type=Path, default=LIST, help="tests that have to fail, and why")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    expected = reasons(config.getoption("--expected-failures").read_text())
    for item in items:
        reason = expected.get(item.nodeid.rpartition("/")[2])
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
