"""Every order of events at the end of a failed call, for up to three hosts, and mistakes that this finds."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from distxla.runtime.calls import call_end
from distxla.runtime.calls.call_end import CallEnd, Do, Happened, Step
from tests.runtime.calls.call_end_cases import EndExplorer


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_all_orders_of_events(hosts: int) -> None:
    explorer = EndExplorer(call_end, hosts)
    explorer.explore(explorer.starts())
    assert len(explorer.seen) > 20 * hosts


MISTAKES = [
    ("if event is Happened.FAILED and whole:", "if event is Happened.FAILED and not whole:", "are killed"),
    ("if hosts[1:]:", "if False:", "while devices compute"),
    ("            if late:\n", "            if False:\n", "while devices compute"),
    ("late = (*late, hosts[0])", "late = (hosts[0],)", "while devices compute"),
    ("self._next(Do.CLEAR if whole else None)", "self._next(Do.ALLOW if whole else None)", "before all is cleared"),
    ("Do.ALLOW if step is Do.CLEAR and whole", "Do.ALLOW if whole", "allowed twice"),
    ("Do.ALLOW if step is Do.CLEAR and whole", "Do.ALLOW if False", "not cleared up"),
    ("return self._next(step, hosts[1:], late)", "return self._next(step, hosts, late)", "awaited twice"),
    ("self._next(Do.AWAIT, late) if", "self._next(Do.AWAIT, self._all) if", "is back is awaited"),
    ("self._next(Do.AWAIT, late) if", "self._next(Do.FORCE, late) if", "are killed"),
    (
        "            return self._next(Do.END, self._all)\n        if step is Do.RELEASE",
        "        if step is Do.RELEASE",
        "not cleared up",
    ),
    ("return self._next(Do.FORCE, hosts)", "return self._next(Do.AWAIT, hosts)", "must end are left"),
]


@pytest.mark.parametrize(("right", "wrong", "found"), MISTAKES)
def test_a_mistake_is_found(right: str, wrong: str, found: str) -> None:
    text = inspect.getsource(call_end)
    assert text.count(right) == 1
    module = ModuleType("mistaken")
    exec(text.replace(right, wrong), vars(module))
    explorer = EndExplorer(module, 2)
    with pytest.raises(AssertionError, match=found):
        explorer.explore(explorer.starts())


def test_the_states_that_a_user_sees() -> None:
    end = CallEnd(2)
    assert end.is_over
    end.begin()
    assert not end.is_over
    assert end.handle(Happened.FAILED, whole=True) == Step(Do.RELEASE)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.AWAIT, 0)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.AWAIT, 1)
    assert end.handle(Happened.LATE, whole=True) is None
    assert end.late == (1,)
    assert end.handle(Happened.CALLED, whole=True) == Step(Do.AWAIT, 1)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.CLEAR)
    assert end.handle(Happened.DONE, whole=True) == Step(Do.ALLOW)
    assert end.handle(Happened.DONE, whole=True) is None
    assert end.is_over
