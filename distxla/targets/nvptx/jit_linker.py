"""NVIDIA's assembler as a library, nvJitLink, which Python packages of CUDA programs often bring along."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from distxla.errors import CompileError

OPTIONS = (b"-Xptxas=-fmad=false", b"-verbose")  # as those of ptxas (assembler.py)
PTX = 2  # nvJitLinkInputType
SUCCESS = 0  # nvJitLinkResult


class LinkerError(CompileError):
    """This nvJitLink can't assemble anything for the architecture: it is too old, or can't be loaded."""


def assemble_in_process(library: str, ptx: str, architecture: str) -> tuple[bytes | None, str]:
    """The cubin, None if it refuses the PTX, and the messages, in ptxas's form. Raises LinkerError."""
    try:
        linker = ctypes.CDLL(library)
    except OSError as error:
        raise LinkerError(f"nvJitLink can't be loaded: {error}") from error
    text = ptx.encode()
    with _handle(linker, architecture) as handle:
        added = linker.nvJitLinkAddData(handle, PTX, text, ctypes.c_size_t(len(text)), b"kernels.ptx")
        done = added == SUCCESS and linker.nvJitLinkComplete(handle) == SUCCESS
        logs = (_given(linker, log, handle).rstrip(b"\0") for log in ("ErrorLog", "InfoLog"))
        messages = "\n".join(log.decode(errors="replace") for log in logs)
        return _given(linker, "LinkedCubin", handle) if done else None, messages


@contextmanager
def _handle(linker: ctypes.CDLL, architecture: str) -> Iterator[ctypes.c_void_p]:
    options = [f"-arch={architecture}".encode(), *OPTIONS]
    handle, table = ctypes.c_void_p(), (ctypes.c_char_p * len(options))(*options)
    if (status := linker.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(options)), table)) != SUCCESS:
        raise LinkerError(
            f"nvJitLink can't assemble for {architecture}: nvJitLinkCreate returned {status}; a newer one may"
        )
    try:
        yield handle
    finally:
        linker.nvJitLinkDestroy(ctypes.byref(handle))


def _given(linker: ctypes.CDLL, what: str, handle: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    status = getattr(linker, f"nvJitLinkGet{what}Size")(handle, ctypes.byref(size))
    data = ctypes.create_string_buffer(max(1, size.value))
    if status != SUCCESS or (status := getattr(linker, f"nvJitLinkGet{what}")(handle, data)) != SUCCESS:
        raise CompileError(f"nvJitLinkGet{what} returned {status}")
    return data.raw[: size.value]


__all__ = ["LinkerError", "assemble_in_process"]
