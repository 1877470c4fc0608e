"""The native loops of a call (collectives/protocols/call_loops.py) as ctypes functions, and where they come from."""

from __future__ import annotations

import ctypes

from distxla.program.artifact import CompiledProgram

SERVE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
CALL_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64)


def support_program() -> CompiledProgram:
    """The program that holds both loops, from the cache on disk, so that a driver seldom loads LLVM."""
    from distxla.compiler.cache import ProgramCache
    from distxla.compiler.cache_key import text_key

    programs, key = ProgramCache(), text_key("support loops")
    program = programs.read(key)
    if program is None:
        from distxla.collectives.transports.shared_memory.emit_call_loops import compile_call_loops

        program = compile_call_loops()
        programs.write(key, program)
    return program
