"""What Ray imports at its top and workers don't need is imported at its first use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distxla.runtime.ray.deferred import deferred

PACKAGE = "deferred_example"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a submodule, which has not been imported."""
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").write_text("value = 3\n")
    (tmp_path / PACKAGE / "below.py").write_text("value = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield PACKAGE
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_module_is_imported_when_an_attribute_is_asked_for(package: str) -> None:
    with deferred(package):
        import deferred_example as early
    assert package not in sys.modules
    assert early.value == 3
    assert sys.modules[package].value == 3
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'other'"):
        _ = early.other


def test_so_it_is_within(package: str) -> None:
    with deferred(package):
        from deferred_example import value
    assert value == 3
    assert sys.modules[package].__file__


def test_a_submodule_is_found(package: str) -> None:
    with deferred(package):
        import deferred_example.below as again
        from deferred_example import below
    assert below.value == 4
    assert again is below


def test_what_is_imported_already_stays(package: str) -> None:
    import deferred_example as before

    with deferred(package):
        import deferred_example as within
    assert within is before
    assert sys.modules[package] is before
