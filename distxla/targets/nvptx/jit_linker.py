"""NVIDIA's assembler as a library, nvJitLink, which Python packages of CUDA programs often bring along."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from distxla.errors import CompileError

OPTIONS = (b"-fma=0", b"-verbose")  # as those of ptxas (assembler.py)
PTX = 2  # nvJitLinkInputType
SUCCESS = 0  # nvJitLinkResult


def assemble_in_process(library: str, ptx: str, architecture: str) -> tuple[bytes | None, str]:
    """The cubin, None if it refuses the PTX, and the messages, in ptxas's form. CompileError if it can't be used."""
    try:
        linker = ctypes.CDLL(library)
    except OSError as error:
        raise CompileError(f"nvJitLink can't be loaded: {error}") from error
    text = ptx.encode()
    with _handle(linker, [f"-arch={architecture}".encode(), *OPTIONS]) as handle:
        added = linker.nvJitLinkAddData(handle, PTX, text, ctypes.c_size_t(len(text)), b"kernels.ptx")
        done = added == SUCCESS and linker.nvJitLinkComplete(handle) == SUCCESS
        messages = "".join(_given(linker, log, handle).rstrip(b"\0").decode() for log in ("ErrorLog", "InfoLog"))
        return _given(linker, "LinkedCubin", handle) if done else None, messages


@contextmanager
def _handle(linker: ctypes.CDLL, options: list[bytes]) -> Iterator[ctypes.c_void_p]:
    handle, table = ctypes.c_void_p(), (ctypes.c_char_p * len(options))(*options)
    if (status := linker.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(options)), table)) != SUCCESS:
        raise CompileError(f"nvJitLink can't be used: nvJitLinkCreate returned {status}")
    try:
        yield handle
    finally:
        linker.nvJitLinkDestroy(ctypes.byref(handle))


def _given(linker: ctypes.CDLL, what: str, handle: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(linker, f"nvJitLinkGet{what}Size")(handle, ctypes.byref(size))
    data = ctypes.create_string_buffer(max(1, size.value))
    getattr(linker, f"nvJitLinkGet{what}")(handle, data)
    return data.raw[: size.value]


__all__ = ["assemble_in_process"]
