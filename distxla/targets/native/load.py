"""Loading a linked program into this process: private memory, filled import slots, code made read-only.

The memory is a copy of the image, or a private mapping of a file that holds it: then processes that map the same file
share its pages, but for those that they write.

Needs ctypes only, no LLVM and no NumPy, so that a replica stays small.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

from distxla.errors import CompileError
from distxla.program.artifact import CompiledProgram
from distxla.targets.local_rank import ALONE, LocalRank
from distxla.targets.native.libraries import BLAS_PREFIX

PAGE = 4096
PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC = 0, 1, 2, 4
MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 0x02, 0x20, 0x4000
FFT_PREFIX = "numpy.fft."
MAP_FAILED = ctypes.c_void_p(-1).value


class LoadedImage:
    """A program in memory. `close` unmaps it: no thread may be inside of it or call it afterwards."""

    def __init__(self, program: CompiledProgram, address: int, size: int) -> None:
        self.program = program
        self.base = address
        self._size = size

    def address_of(self, symbol: str) -> int:
        """The address of a function or of other data; KeyError if the program has no such symbol."""
        return self.base + self.program.symbols[symbol]

    def close(self) -> None:
        """Unmap; twice is fine."""
        if self._size:
            _libc().munmap(self.base, self._size)
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
    holds the image, to be mapped in place of `program.image`.  report: never called, code reports nothing.  local: is
    of no account.  No byte is writable and executable at the same time.  Raises CompileError where an import is
    unknown, OSError where memory or permission is missing.
    """
    resolve = resolve or resolve_import
    descriptor, length = file or (-1, len(program.image))
    size = max(PAGE, (length + PAGE - 1) // PAGE * PAGE)
    address = map_memory(size, descriptor, program.name)
    loaded = LoadedImage(program, address, size)
    try:
        if file is None:
            ctypes.memmove(address, program.image, length)
        slots = struct.pack(f"<{len(program.imports)}Q", *(resolve(name) for name in program.imports))
        ctypes.memmove(address + program.imports_offset, slots, len(slots))
        make_executable(address, program.code_bytes, program.name)
    except BaseException:
        loaded.close()
        raise
    return loaded


def map_memory(size: int, descriptor: int, name: str) -> int:
    """The address of `size` private writable bytes: zeros, or where there is a descriptor, of its file. name: of the
    code that goes there, for the OSError where memory is missing."""
    flags = MAP_PRIVATE | (MAP_ANONYMOUS if descriptor < 0 else 0)
    address = _libc().mmap(None, size, PROT_READ | PROT_WRITE, flags, descriptor, 0)
    if address is None or address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"no memory for {name}")
    return int(address)


def map_stacks(count: int, size: int) -> int:
    """The address of `count` stacks of `size` bytes, whole pages, below each of which a page can't be accessed: stack k
    ends `(k + 1) * (size + PAGE)` bytes behind it. Pages cost memory once they are touched. Stays until the process
    ends; OSError where memory is missing."""
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    base = _libc().mmap(None, count * (size + PAGE), PROT_READ | PROT_WRITE, flags, -1, 0)
    if base is None or base == MAP_FAILED:
        raise OSError(ctypes.get_errno(), f"no memory for {count} stacks of {size} bytes")
    for number in range(count):
        if _libc().mprotect(base + number * (size + PAGE), PAGE, PROT_NONE):
            raise OSError(ctypes.get_errno(), f"cannot guard {count} stacks")
    return int(base)


def make_executable(address: int, size: int, name: str) -> None:
    """Make whole pages of code executable and read-only; OSError where that is forbidden."""
    if _libc().mprotect(address, size, PROT_READ | PROT_EXEC):
        raise OSError(ctypes.get_errno(), f"cannot make the code of {name} executable")


def resolve_import(name: str) -> int:
    """The address of a function of libc, libm, the linear algebra library, or of NumPy's transforms.

    The first `scipy_…` name loads OpenBLAS with one thread. Raises CompileError for names that none of them has.
    """
    if name.startswith(FFT_PREFIX):
        from distxla.targets.native.pocketfft import resolve_fft

        return resolve_fft(name)
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
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc


@cache
def _libm() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")


@cache
def _openblas() -> ctypes.CDLL:
    """OpenBLAS, one thread, with the kernels that were measured to be the fastest for this CPU.

    A wrong guess by the library costs half its speed, so the choice is ours unless the user has made it.
    """
    import scipy_openblas32

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "OPENBLAS_CORETYPE" not in os.environ and (core := openblas_core()):
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


def openblas_core() -> str | None:
    """The value for OPENBLAS_CORETYPE, or None to let the library choose.

    AMD's CPUs with AVX-512 get its AVX2 kernels (113 GFLOP/s for 1024^3 f32 on one of them); the SkylakeX ones need
    only the AVX-512 subsets below and are about twice as fast there (214).
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    fields = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("vendor_id") == "GenuineIntel":
        return None  # the library knows these and chooses well
    flags = set(fields.get("flags", "").split())
    return "SKYLAKEX" if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "fma"} <= flags else None
