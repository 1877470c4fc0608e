"""Lazy dataclasses are the standard library's in all but the time when they are compiled."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from distxla import lazy_dataclass


def classes(dataclass: Any) -> dict[str, Any]:
    """The same classes by each decorator."""

    @dataclass
    class Open:
        a: int
        b: Any = 2

    @dataclass(frozen=True)
    class Frozen:
        """Has a docstring."""

        a: int
        b: Any = field(default=2, compare=False)
        c: Any = field(default_factory=tuple, repr=False, hash=False)
        shared: ClassVar[int] = 7

        @property
        def doubled(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True, slots=True)
    class Slots:
        a: int
        b: Any = 2
        found_later: Any = field(init=False, default=None, compare=False)

    @dataclass(frozen=True, kw_only=True)
    class Keywords:
        a: int
        b: Any = 2

    @dataclass(frozen=True)
    class Checked:
        a: int
        b: Any = field(init=False, default=5)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")
            object.__setattr__(self, "b", self.a + 1)

    @dataclass(frozen=True)
    class Derived(Frozen):
        d: Any = 4

    @dataclass(frozen=True, eq=False)
    class Identity:
        a: int

    @dataclass(frozen=True, repr=False)
    class Short:
        a: int

    @dataclass(frozen=True)
    class OwnFunctions:
        a: int
        b: Any = 2

        def __init__(self, a: int) -> None:
            object.__setattr__(self, "a", a)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, OwnFunctions)

        def __hash__(self) -> int:
            return 3

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True)
    class OwnEquality:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True)
    class Names:
        a: Any
        missing: Any
        set: Any = 3
        object: Any = field(default_factory=list)

    @dataclass(frozen=True)
    class Empty:
        pass

    return {cls.__name__: cls for cls in locals().values() if isinstance(cls, type)}


LAZY, STANDARD = classes(lazy_dataclass.dataclass), classes(dataclasses.dataclass)


def outcome(use: Callable[[Any], Any], cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What comes of an instance, or the exception's type and text."""
    try:
        return use(cls(*args, **kwargs))
    except Exception as error:
        return type(error), str(error)


def text(value: Any) -> str:
    return re.sub("0x[0-9a-f]+", "0x", repr(value))


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((-1,), {}),
    ((1, 3), {}),
    ((), {"a": 1}),
    ((1,), {"b": "text"}),
    ((1, 2, [3], 4, 5), {}),
    ((1,), {"d": 9}),
    ((), {"no_such": 1}),
]
USES: dict[str, Callable[[Any], Any]] = {
    "representation": repr,
    "fields": dataclasses.astuple,
    "dictionary": dataclasses.asdict,
    "hash": lambda one: hash(one) == hash(copy.copy(one)),
    "copy": lambda one: repr(copy.deepcopy(one)),
    "replace": lambda one: repr(dataclasses.replace(one, a=8)),
    "replace an unknown one": lambda one: dataclasses.replace(one, no_such=8),
    "assign": lambda one: setattr(one, "a", 9),
    "assign another": lambda one: (
        hasattr(one, "__slots__") or one.__setattr__("other", 9)
    ),  # super() fails there in some
    "delete": lambda one: delattr(one, "a"),
    "equal to itself": lambda one: one == one,
    "equal to a copy": lambda one: one == copy.copy(one),
    "equal to another": lambda one: one == dataclasses.replace(one, a=77),
    "equal to a number": lambda one: one == 1,
    "order": lambda one: one < one,
}


@pytest.mark.parametrize("name", STANDARD)
def test_is_made_and_used_as_the_standard_librarys(name: str) -> None:
    for args, kwargs in ARGUMENTS:
        for what, use in USES.items():
            found, expected = (outcome(use, made[name], args, kwargs) for made in (LAZY, STANDARD))
            assert text(found) == text(expected), (what, args, kwargs)


@pytest.mark.parametrize("name", STANDARD)
def test_is_described_as_the_standard_librarys(name: str) -> None:
    lazy, standard = LAZY[name], STANDARD[name]
    assert str(inspect.signature(lazy)) == str(inspect.signature(standard))
    assert lazy.__match_args__ == standard.__match_args__
    assert lazy.__init__.__qualname__ == standard.__init__.__qualname__
    assert lazy.__init__.__module__ == lazy.__module__ == __name__
    described = [(one.name, one.type, one.default, one.compare, one.repr) for one in dataclasses.fields(standard)]
    assert [(one.name, one.type, one.default, one.compare, one.repr) for one in dataclasses.fields(lazy)] == described


def order(dataclass: Any) -> Any:
    @dataclass
    class Order:
        a: int = 1
        b: int  # type: ignore[misc]

    return Order


def derived(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Base:
        a: int

    @dataclass
    class Derived(Base):
        b: int

    return Derived


def own_assignment(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __setattr__(self, name: str, value: object) -> None:
            pass

    return Own


@pytest.mark.parametrize("declare", [order, derived, own_assignment])
@pytest.mark.parametrize("module", [dataclasses, lazy_dataclass])
def test_what_cannot_be_is_refused_where_it_is_declared(declare: Callable[[Any], Any], module: Any) -> None:
    with pytest.raises(TypeError):
        declare(module.dataclass)


def test_an_initvar_is_refused() -> None:
    with pytest.raises(TypeError, match="an InitVar is no field"):

        @lazy_dataclass.dataclass
        class Given:
            a: dataclasses.InitVar[int]


@pytest.mark.parametrize("name", ["Identity", "Short", "Open"])
def test_equality_is_that_of_tuples(name: str) -> None:
    """The same NaN is equal to itself there."""
    nan = float("nan")
    made = LAZY[name]
    assert made(nan) == made(nan) or name == "Identity"
    assert made(nan) != made(float("nan"))


def test_a_field_may_hold_the_object_itself() -> None:
    made = LAZY["Open"](1)
    made.b = made
    assert repr(made) == repr(made.b) == "classes.<locals>.Open(a=1, b=...)"


def test_nothing_is_compiled_before_the_first_use() -> None:
    made = classes(lazy_dataclass.dataclass)["Frozen"]
    before = vars(made)["__init__"]
    assert not inspect.isfunction(before)
    made(1)
    assert inspect.isfunction(vars(made)["__init__"])


def test_a_class_without_fields_of_its_own_shares_the_compiled_functions() -> None:
    made = classes(lazy_dataclass.dataclass)["Frozen"]

    class Other(made):  # type: ignore[misc, valid-type]
        pass

    one = Other(1)
    assert (one.a, one.b, one.c, type(one)) == (1, 2, (), Other)
    one.more = 5  # a subclass that is no dataclass may have further attributes
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2
    assert inspect.isfunction(vars(made)["__init__"])
    assert "__init__" not in vars(Other)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: list[int] = field(default_factory=list)


def test_a_frozen_class_with_slots_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, [2]))) == Pickled(1, [2])
