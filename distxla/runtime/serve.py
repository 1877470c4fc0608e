"""The native loops of a call (collectives/call_loops.py) as ctypes functions, and where their code comes from."""

from __future__ import annotations

import ctypes

from distxla.codegen.program import CompiledProgram

SERVE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
CALL_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64)


def support_program() -> CompiledProgram:
    """The program that holds both loops, from the cache on disk, so that a driver seldom loads LLVM."""
    from distxla.runtime.cache import ProgramCache, text_key

    programs, key = ProgramCache(), text_key("support loops")
    program = programs.read(key)
    if program is None:
        from distxla.collectives.transports.call_loops import compile_call_loops

        program = compile_call_loops()
        programs.write(key, program)
    return program
