"""Every order of events at the end of a failed call, for up to three hosts, and mistakes that this finds."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from distxla.runtime.calls import call_end
from distxla.runtime.calls.call_end import CallEnd, EndAction, EndStep, Happened
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
    ("(EndAction.CLEAR if whole else None)", "(EndAction.ALLOW if whole else None)", "before all is cleared"),
    ("EndAction.ALLOW if step is EndAction.CLEAR and whole", "EndAction.ALLOW if whole", "allowed twice"),
    ("EndAction.ALLOW if step is EndAction.CLEAR and whole", "EndAction.ALLOW if False", "not cleared up"),
    ("return self._next(step, hosts[1:], late)", "return self._next(step, hosts, late)", "awaited twice"),
    ("self._next(EndAction.AWAIT, late) if", "self._next(EndAction.AWAIT, self._all) if", "is back is awaited"),
    ("self._next(EndAction.AWAIT, late) if", "self._next(EndAction.FORCE, late) if", "are killed"),
    (
        "            return self._next(EndAction.END, self._all)\n        if step is EndAction.RELEASE",
        "        if step is EndAction.RELEASE",
        "not cleared up",
    ),
    ("return self._next(EndAction.FORCE, hosts)", "return self._next(EndAction.AWAIT, hosts)", "must end are left"),
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
    assert end.handle(Happened.FAILED, whole=True) == EndStep(EndAction.RELEASE)
    assert end.handle(Happened.DONE, whole=True) == EndStep(EndAction.AWAIT, 0)
    assert end.handle(Happened.DONE, whole=True) == EndStep(EndAction.AWAIT, 1)
    assert end.handle(Happened.LATE, whole=True) is None
    assert end.late == (1,)
    assert end.handle(Happened.CALLED, whole=True) == EndStep(EndAction.AWAIT, 1)
    assert end.handle(Happened.DONE, whole=True) == EndStep(EndAction.CLEAR)
    assert end.handle(Happened.DONE, whole=True) == EndStep(EndAction.ALLOW)
    assert end.handle(Happened.DONE, whole=True) is None
    assert end.is_over
