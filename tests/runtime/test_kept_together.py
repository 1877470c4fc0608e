"""A replacement that was compiled for executables that run at once lives as long as all of them, and no longer."""

from __future__ import annotations

import gc
import weakref

import pytest

from distxla.runtime.arrays.executable import Executable


@pytest.mark.parametrize("goes", ["first", "other"])
def test_what_replaces_executables_goes_with_either(goes: str) -> None:
    mine = {name: made() for name in ("first", "other")}
    replacement = made()
    gone = weakref.ref(replacement)
    mine["first"].keep_together((1, 2), [mine["other"]], [None, replacement])
    del replacement
    gc.collect()
    assert gone() is not None
    del mine[goes]
    gc.collect()
    assert gone() is None
    assert all(not kept.together for kept in mine.values())


def made() -> Executable:
    """One without a program."""
    found = object.__new__(Executable)
    found.together, found._others = {}, {}
    return found
