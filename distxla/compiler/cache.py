"""Compiled programs on disk, keyed by their module, options and target (cache_key.py).

The folder (cache_folder.py) is the user's alone; entries are checked before they are loaded, and a damaged one is
compiled again.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from distxla.compiler.cache_folder import CacheFolder, cache_folder, cache_limit
from distxla.compiler.cache_key import program_key
from distxla.compiler.server import CompileServer
from distxla.compiler.server_share import ServerShare
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.location import Location
from distxla.program.artifact import CompiledProgram, EnclosingLoop, Site
from distxla.program.options import CompileOptions
from distxla.rewrites.executed_form import executed_form


class ProgramCache:
    """Compiled programs in a folder; safe to share between processes.

    folder, max_bytes: as DISTXLA_CACHE_DIR and DISTXLA_CACHE_SIZE say where they are not given. Problems of the
    folder or the disk are warnings (CacheFolder), after which nothing is found or kept.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int | None = None) -> None:
        self.files = CacheFolder(folder or cache_folder(), cache_limit() if max_bytes is None else max_bytes)

    def get(self, key: str, module: Module) -> CompiledProgram | None:
        """The program of that key, its sites located in `module`; None if there is none."""
        program = self.read(key)
        return None if program is None else _located(program, module)

    def read(self, key: str) -> CompiledProgram | None:
        """The program of that key; None if there is none."""
        return self.files.read_object(key, CompiledProgram)

    def write(self, key: str, program: CompiledProgram) -> None:
        """Keep the program under a key; drop old ones where the folder grows beyond its bound."""
        self.files.write_object(key, program)


def compile_cached(
    server: CompileServer | ServerShare,
    module: Module,
    counts: Counts,
    options: CompileOptions | None = None,
    programs: ProgramCache | None = None,
) -> tuple[CompiledProgram, bool]:
    """The module's program, and whether it came from the cache. Blocks; raises the errors of CompileServer.compile."""
    options = options or CompileOptions()
    programs = programs or ProgramCache()
    key = program_key(module, counts, options)
    found = programs.get(key, module)
    if found is not None:
        return found, True
    program = server.compile(module, counts, options)
    programs.write(key, program)
    return program, False


def _located(program: CompiledProgram, module: Module) -> CompiledProgram:
    """The program with its sites pointing into this module's text, which may have been another file's then."""

    module = executed_form(module)

    def place(one: Site | EnclosingLoop) -> Location | None:
        holders = [c for c in module.computations if one.instruction in c.by_name]
        holder = next((c for c in holders if c.name == one.computation), holders[0] if holders else None)
        return module.locate(holder[one.instruction]) if holder else None

    sites = []
    for site in program.sites:
        loops = tuple(dataclasses.replace(loop, location=place(loop)) for loop in site.loops)
        sites.append(dataclasses.replace(site, location=place(site), loops=loops))
    return dataclasses.replace(program, sites=tuple(sites))
