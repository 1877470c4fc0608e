"""Loading a linked program into this process: private memory, filled import slots, code made read-only.

The memory is a copy of the image, or a private mapping of a file that holds it: then processes that map the same file
share its pages, but for those that they write.

Needs no LLVM, so that a replica stays small.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

from distxla.errors import CompileError
from distxla.machine.mappings import ANONYMOUS, EXECUTE, PRIVATE, READ, map_memory, protect, unmap, whole_pages
from distxla.program.artifact import CompiledProgram
from distxla.targets.local_rank import ALONE, LocalRank
from distxla.targets.native.libraries import BLAS_PREFIX
from distxla.targets.native.traits import own_fields, own_traits

FFT_PREFIX = "numpy.fft."


class LoadedImage:
    """A program in memory. `close` unmaps it: no thread may be inside of it or call it afterwards."""

    def __init__(self, program: CompiledProgram, address: int, size: int) -> None:
        self.program = program
        self.base = address
        self._size = size

    def address_of(self, symbol: str) -> int:
        """The address of a function or of other data; KeyError if the program has no such symbol."""
        return self.base + self.program.image.symbols[symbol]

    def close(self) -> None:
        """Unmap; twice is fine."""
        if self._size:
            unmap(self.base, self._size)
            self._size = 0


def load_image(
    program: CompiledProgram,
    resolve: Callable[[str], int] | None = None,
    file: tuple[int, int] | None = None,
    report: Callable[[str, str], None] | None = None,
    local: LocalRank = ALONE,
) -> LoadedImage:
    """Map the program's image and make it ready to run.

    resolve: the address of an imported function (default: `resolve_import`).  file: descriptor and bytes of a file that
    holds the image, to be mapped in place of its data.  report: never called, code reports nothing.  local: not used.
    No byte is writable and executable at the same time.  Raises CompileError where an import is
    unknown, OSError where memory or permission is missing.
    """
    resolve = resolve or resolve_import
    descriptor, length = file or (-1, len(program.image.data))
    size = whole_pages(max(1, length))
    address = map_code(size, descriptor, program.name)
    loaded = LoadedImage(program, address, size)
    try:
        if file is None:
            ctypes.memmove(address, program.image.data, length)
        slots = struct.pack(f"<{len(program.image.imports)}Q", *(resolve(name) for name in program.image.imports))
        ctypes.memmove(address + program.image.imports_offset, slots, len(slots))
        make_executable(address, program.image.code_bytes, program.name)
    except BaseException:
        loaded.close()
        raise
    return loaded


def map_code(size: int, descriptor: int, name: str) -> int:
    """The address of `size` private writable bytes: zeros, or where there is a descriptor, of its file. name: of the
    code that goes there, for the OSError where memory is missing."""
    try:
        return map_memory(size, flags=PRIVATE | (ANONYMOUS if descriptor < 0 else 0), descriptor=descriptor)
    except OSError as error:
        raise OSError(error.errno, f"no memory for {name}") from None


def make_executable(address: int, size: int, name: str) -> None:
    """Make whole pages of code executable and read-only; OSError where that is forbidden."""
    try:
        protect(address, size, READ | EXECUTE)
    except OSError as error:
        raise OSError(error.errno, f"cannot make the code of {name} executable") from None


def resolve_import(name: str) -> int:
    """The address of a function of libc, libm, the linear algebra library, or of NumPy's transforms.

    The first `scipy_…` name loads OpenBLAS with one thread. Raises CompileError for names that none of them has.
    """
    if name.startswith(FFT_PREFIX):
        from distxla.targets.native.pocketfft import resolve_fft

        return resolve_fft(name.removeprefix(FFT_PREFIX))
    library = _openblas() if name.startswith(BLAS_PREFIX) else None
    for candidate in (library,) if library else (_libc(), _libm()):
        try:
            address = ctypes.cast(getattr(candidate, name), ctypes.c_void_p).value
        except AttributeError:
            continue
        if address:
            return address
    raise CompileError(f"the compiled program needs the function {name}, which no library has")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")


@cache
def _openblas() -> ctypes.CDLL:
    """OpenBLAS, one thread, with the kernels that the processor's traits say, unless the user has chosen some."""
    import scipy_openblas32

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "OPENBLAS_CORETYPE" not in os.environ and (core := own_traits().openblas_core(own_fields())):
        os.environ["OPENBLAS_CORETYPE"] = core
    folder = Path(scipy_openblas32.get_lib_dir())
    found = sorted(folder.glob("libscipy_openblas*.so*"))
    if not found:
        raise CompileError(f"scipy-openblas32 has no shared library in {folder}")
    library = ctypes.CDLL(str(found[0]))
    # LAPACK reports arguments that it considers bad (a NaN here and there) on the process's output, besides returning
    # the number: any function that does nothing with its arguments keeps it quiet
    library.scipy_openblas_set_xerbla.argtypes = (ctypes.c_void_p,)
    library.scipy_openblas_set_xerbla(ctypes.cast(_libc().abs, ctypes.c_void_p))
    return library
