"""Arrays in an .npz file, known by key and header before any of their data is read.

    with Archive("args.npz") as archive:
        for member in archive.members:
            member.key, member.stand_in.dtype, member.stand_in.shape      # from a few hundred bytes
            member.array                                                  # now its data is read

Files are not trusted: before a caller asks for an array no more than the file's own size is allocated, and an array
takes the size in its header, which must agree with the archive's directory.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from math import prod
from typing import IO, Any, BinaryIO

import numpy as np

from distxla.errors import ArgumentError, OutOfMemoryError
from distxla.lazy_dataclass import dataclass
from distxla.machine.byte_counts import amount
from distxla.similar_words import did_you_mean, nearest
from distxla.text.missing_files import unreadable

Array = np.ndarray[Any, Any]
_SUFFIX = ".npy"
_MAGIC = np.lib.format.MAGIC_PREFIX
_HEADERS = {(1, 0): (2, np.lib.format.read_array_header_1_0), (2, 0): (4, np.lib.format.read_array_header_2_0)}
_LONGEST_HEADER = 4096  # characters; one of 64 dimensions has 1,400
_WIDEST = 32  # bytes of an element
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # NumPy's; others allocate as much as their data asks for
_DEFLATE_RATIO = 1032  # that format packs no tighter
_ENCRYPTED = 1
_SHOWN = 60  # characters of a key in a message


@dataclass(frozen=True)
class Member:
    """An array of the archive. stand_in: has the array's dtype and shape, but no memory and no values of its own.
    begin: bytes before the data."""

    key: str
    stand_in: Array
    begin: int
    _archive: Archive
    _info: zipfile.ZipInfo

    @property
    def nbytes(self) -> int:
        """Bytes of the array's data."""
        return self.stand_in.size * self.stand_in.itemsize

    @cached_property
    def array(self) -> Array:
        """The array. Reads it at first use, while the archive is open; ArgumentError if it is damaged."""
        return self._archive.read(self._info, self.key)


class Archive:
    """An open .npz file. members: its arrays, in the file's order.

    ArgumentError if the file can't be opened, is no .npz file or is truncated; if a member is no array of numbers, has
    the key of another member, or has a header that does not match its size.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with ExitStack() as opened:
            try:
                file = opened.enter_context(open(path, "rb"))
                self._zip = opened.enter_context(self._opened(file))
                self.members = [self._member(info) for info in self._zip.infolist()]
            except OSError as error:
                raise unreadable(path, error) from error
            for key, count in Counter(member.key for member in self.members).items():
                if count > 1:
                    raise ArgumentError(f"{path} holds {shown(key)} {count} times")
            self._opened_files = opened.pop_all()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened_files.close()

    def require_memory(self) -> None:
        """OutOfMemoryError if this host has too little memory left for all arrays."""
        from distxla.machine.memory_limits import free_memory

        need, free = sum(member.nbytes for member in self.members), free_memory()
        if need > free.bytes:
            raise OutOfMemoryError(
                f"the arrays of {self._path} take {amount(need)}; "
                f"this host has {amount(free.bytes)} left ({free.source})"
            )

    def _opened(self, file: BinaryIO) -> zipfile.ZipFile:
        if file.read(len(_MAGIC)) == _MAGIC:
            raise ArgumentError(f"{self._path} holds a single array; an .npz file with named arrays is needed")
        self._size = file.seek(0, io.SEEK_END)
        try:
            return zipfile.ZipFile(file)
        except OSError:
            raise
        except Exception as error:  # a malformed central directory raises many kinds of errors
            raise ArgumentError(f"{self._path} is not an .npz file, or it is cut short") from error

    def _member(self, info: zipfile.ZipInfo) -> Member:
        key = info.filename.removesuffix(_SUFFIX)
        if key == info.filename:
            raise ArgumentError(f"{self._path}: {shown(key)} is no array: the names of arrays end with {_SUFFIX}")
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            how = "encrypted" if info.flag_bits & _ENCRYPTED else f"compressed by method {info.compress_type}"
            raise self._refused(key, f"it is {how}; np.savez and np.savez_compressed write what is read here")
        ratio = 1 if info.compress_type == zipfile.ZIP_STORED else _DEFLATE_RATIO
        if info.compress_size > self._size or info.file_size > ratio * max(1, info.compress_size):
            raise self._refused(
                key, f"it says that it holds {info.file_size} bytes, in {info.compress_size} of a file of {self._size}"
            )
        try:
            with self._zip.open(info) as data, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # headers of Python 2 are read all the same
                sizes, dtype, begin = _header(data)
        except ArgumentError as error:
            raise self._refused(key, error.message) from error
        except OSError:
            raise
        except Exception as error:  # of zipfile, zlib, NumPy, and Python's parser
            raise self._refused(key, "the file is damaged, or it is no array") from error
        need = prod(sizes) * dtype.itemsize
        if info.file_size - begin != need:
            says = f"{dtype.name}{list(sizes)}, {need} bytes"
            raise self._refused(key, f"its header says {says}; it has {info.file_size - begin}")
        try:
            stand_in = np.broadcast_to(np.zeros((), dtype), sizes)
        except ValueError as error:  # an empty array, with a dimension that NumPy does not take
            raise self._refused(key, f"no array has dimensions of sizes {list(sizes)}") from error
        return Member(key, stand_in, begin, self, info)

    def read(self, info: zipfile.ZipInfo, key: str) -> Array:
        """A member's array."""
        try:
            with self._zip.open(info) as data:
                found: Array = np.lib.format.read_array(data, allow_pickle=False)
                return found
        except MemoryError:
            raise
        except Exception as error:  # of zipfile, zlib and NumPy
            raise self._refused(key, "the file is damaged, or it is no array") from error

    def _refused(self, key: str, why: str) -> ArgumentError:
        return ArgumentError(f"{self._path}: {shown(key)} cannot be read: {why}")


def shown(key: str) -> str:
    """A key for a message, quoted and escaped; a long one is truncated."""
    return repr(key if len(key) <= _SHOWN else f"{key[:_SHOWN]}...")


def no_key(path: str, key: str, prefix: str, first: str) -> ArgumentError:
    """The error for a key of another form. first: a key that is right, of the first leaf."""
    error = ArgumentError(f"{path}: {shown(key)} is no key; keys are {first}@0, or {first} for all devices")
    word = key.rstrip("0123456789.@")
    if word != prefix and len(word) < 2 * len(prefix) and nearest(word, [prefix]) is not None:
        error.add_note(did_you_mean(prefix + key[len(word) :]))
    return error


def _header(data: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Dimension sizes, dtype, and number of bytes before the data."""
    magic = data.read(np.lib.format.MAGIC_LEN)
    version = np.lib.format.read_magic(io.BytesIO(magic))
    if version not in _HEADERS:
        raise ArgumentError(
            f"it is of version {version[0]}.{version[1]} of the format, in which no numbers are written"
        )
    width, read = _HEADERS[version]
    prefix = data.read(width)
    length = int.from_bytes(prefix, "little")
    if length > _LONGEST_HEADER:
        raise ArgumentError(f"it has a header of {length} bytes; an array of numbers has less than {_LONGEST_HEADER}")
    sizes, _, dtype = read(io.BytesIO(prefix + data.read(length)))
    if dtype.kind not in "biufcV" or dtype.fields is not None or dtype.subdtype is not None or dtype.itemsize > _WIDEST:
        what = "Python objects" if dtype.hasobject else str(dtype)[:_SHOWN]
        raise ArgumentError(f"it holds {what}, which are no numbers")
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in sizes):
        raise ArgumentError(f"no array has dimensions of sizes {str(list(sizes))[:_SHOWN]}")
    return sizes, dtype, len(magic) + width + length


__all__ = ["Archive", "Member", "no_key", "shown"]
