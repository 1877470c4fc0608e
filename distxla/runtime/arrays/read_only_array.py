"""NumPy's interface of arrays on devices: operators, functions, methods, Python's numbers and sequences."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from distxla.ir.public_names import PublicNames

_OF_NUMPY: Final = frozenset(name for name in dir(np.ndarray) if not name.startswith("_")) - {"device"}


class ReadOnlyArray(PublicNames, NDArrayOperatorsMixin):  # type: ignore[metaclass]  # an ABC in the stub only
    """An array that is never written again, and whose values `__array__` gives.

    All that NumPy computes with it is a NumPy array. `copy` and `deepcopy` return the array itself; pickle stores the
    values: unpickling gives a NumPy array.
    """

    __slots__ = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]
    _KIND: ClassVar[str]  # for messages: "a DeviceArray"

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The dimension sizes."""

    @property
    @abstractmethod
    def ndim(self) -> int:
        """The number of dimensions."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The values; blocks until they are there."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions and all operators: on the values, with a NumPy array as the result."""
        if any(isinstance(out, ReadOnlyArray) for out in options.get("out", ())):
            raise TypeError(f"{self._KIND} is never written: take another `out`; x = x + 1 instead of x += 1")
        if "where" in options:
            options["where"] = _as_numpy(options["where"])
        return getattr(ufunc, method)(*map(_as_numpy, inputs), **options)

    def __eq__(self, other: Any) -> Any:
        """By elements; with objects that NumPy cannot compare, such as a text, all False. (The ufunc would raise.)"""
        return np.asarray(self) == _as_numpy(other)

    def __ne__(self, other: Any) -> Any:
        return np.asarray(self) != _as_numpy(other)

    def __getattr__(self, name: str) -> Any:
        """The other methods and attributes of NumPy arrays: `x.sum()`, `x.T`, `x.astype(np.float64)`."""
        if name in _OF_NUMPY:
            return getattr(np.asarray(self), name)
        raise AttributeError(f"{self._KIND} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*_OF_NUMPY, *super().__dir__()})

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"len() of {self._KIND} without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __complex__(self) -> complex:
        return complex(np.asarray(self))

    def __index__(self) -> int:
        return operator.index(np.asarray(self))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (np.asarray(self),)


def _as_numpy(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, ReadOnlyArray) else value


__all__ = ["ReadOnlyArray"]
