"""Arrays that are kept for a comparison: in memory up to a limit, in a file without a name beyond it."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np

Array = np.ndarray[Any, Any]


class Stored:
    """An array that the store holds."""

    def __init__(
        self, store: ValueStore, array: Array | None, dims: tuple[int, ...], dtype: np.dtype[Any], offset: int
    ):
        self.dims, self.dtype = dims, dtype
        self._store, self._array, self._offset = store, array, offset

    def array(self) -> Array:
        """Read only; where it is in the file, a copy of it."""
        return self._store.read(self._offset, self.dims, self.dtype) if self._array is None else self._array


class ValueStore:
    """limit: bytes in memory.  A context manager: the file goes at its end."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held, self._end = limit, 0, 0
        self._file: IO[bytes] | None = None
        self._known: dict[int, Stored] = {}

    def keep(self, array: Array) -> Stored:
        """The array must not change from now on. One that is kept twice is held once."""
        known = self._known.get(id(array))
        if known is not None and known._array is array:
            return known
        if self._held + array.nbytes <= self._limit:
            self._held += array.nbytes
            stored = self._known[id(array)] = Stored(self, array, array.shape, array.dtype, 0)
            return stored
        return Stored(self, None, array.shape, array.dtype, self._write(array))

    def read(self, offset: int, dims: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        assert self._file is not None
        count = int(np.prod(dims, dtype=np.int64))
        self._file.seek(offset)
        return np.frombuffer(self._file.read(count * dtype.itemsize), dtype).reshape(dims)

    def _write(self, array: Array) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="distxla-values-")  # noqa: SIM115  (closed by __exit__)
        offset = self._end
        self._file.seek(offset)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self._end += array.nbytes
        return offset

    def __enter__(self) -> ValueStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self._known.clear()
        if self._file is not None:
            self._file.close()


__all__ = ["Stored", "ValueStore"]
