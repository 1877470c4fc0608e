"""Compiled programs on disk, keyed by what they were made from and for.

Key: the module's text without metadata, the device counts, the CPU and its features, LLVM's version and the source of
distxla itself. The folder belongs to the user alone (0700, owner checked): whoever can write there can run code as
the user. Files are written under a temporary name and renamed, so that two processes never see half a file; a file
whose content does not fit its hash is dropped and compiled anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pickle
import platform
import stat
import tempfile
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import distxla
from distxla.codegen.program import CompiledProgram, EnclosingLoop, Site
from distxla.collectives.executed_form import executed_form
from distxla.errors import ClusterError, Location
from distxla.ir.module import Module
from distxla.ir.unwritten import is_filled
from distxla.ops.custom_calls.user import declarations, user_targets
from distxla.runtime.compile_server import CompileServer
from distxla.text.printer import print_module

MAGIC = b"distxla program 1\n"
MAX_BYTES = 512 << 20  # of all programs together; the least recently used ones go first
SUFFIX = ".program"


def cache_folder() -> Path:
    """DISTXLA_CACHE_DIR, or distxla in XDG_CACHE_HOME, or ~/.cache/distxla.

    Links are followed. Without any home directory it is a path that cannot be made, so nothing is kept.
    """
    if own := os.environ.get("DISTXLA_CACHE_DIR"):
        return Path(own).resolve()
    try:
        return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distxla").resolve()
    except RuntimeError:
        return Path(os.devnull) / "distxla"


class ProgramCache:
    """A folder of compiled programs; safe to share between processes.

    folder: made with mode 0700 where it is missing; others' rights to it are taken away. Raises ClusterError for what
    is no folder or somebody else's. A folder that cannot be made (a home that is read-only or missing) and failing
    reads and writes (a full disk) make it forget, not fail.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder or cache_folder()
        self.max_bytes = max_bytes
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise ClusterError(f"the cache folder {self.folder} is no folder; set DISTXLA_CACHE_DIR") from None
        except OSError:
            return  # nothing there to read, and writing fails quietly
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise ClusterError(f"the cache folder {self.folder} does not belong to you; set DISTXLA_CACHE_DIR")
        if found.st_mode & 0o077:
            with contextlib.suppress(OSError):  # read-only: then nobody else writes there either
                self.folder.chmod(0o700)

    def get(self, module: Module, replicas: int, partitions: int, *, traced: bool = False) -> CompiledProgram | None:
        """The program, its sites located in `module`; None if there is none."""
        program = self.read(program_key(module, replicas, partitions, traced=traced))
        return None if program is None else _located(program, module)

    def read(self, key: str) -> CompiledProgram | None:
        """The program of that key; None if there is none."""
        path = self.folder / (key + SUFFIX)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if os.fstat(descriptor).st_uid != os.getuid():
                    return None
                data = file.read()
        except OSError:
            return None
        digest, content = data[len(MAGIC) : len(MAGIC) + 32], data[len(MAGIC) + 32 :]
        if not data.startswith(MAGIC) or hashlib.sha256(content).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        program = pickle.loads(content)
        if not isinstance(program, CompiledProgram):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now
        return program

    def put(self, module: Module, replicas: int, partitions: int, program: CompiledProgram) -> None:
        """Keep the program; drop old ones where the folder grows beyond its bound."""
        self.write(program_key(module, replicas, partitions, traced=program.traced), program)

    def write(self, key: str, program: CompiledProgram) -> None:
        """Keep the program under a key; drop old ones where the folder grows beyond its bound."""
        content = pickle.dumps(program, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=self.folder)  # mode 0600
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(MAGIC + hashlib.sha256(content).digest() + content)
                os.rename(temporary, self.folder / (key + SUFFIX))
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            self._evict()
        except OSError:
            return

    def _evict(self) -> None:
        found = []
        for path in self.folder.iterdir():
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # another process was quicker
            if path.name.startswith(".new-"):
                if time.time() - status.st_mtime > 3600:
                    path.unlink(missing_ok=True)  # left by a process that was killed
            elif path.suffix == SUFFIX:
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found, key=lambda row: row[0]):
            if total <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= size


def compile_cached(
    server: CompileServer,
    module: Module,
    replicas: int,
    partitions: int,
    programs: ProgramCache | None = None,
    *,
    traced: bool = False,
) -> tuple[CompiledProgram, bool]:
    """The module's program, and whether it came from the cache. Blocks; raises what CompileServer.compile raises."""
    programs = programs or ProgramCache()
    found = programs.get(module, replicas, partitions, traced=traced)
    if found is not None:
        return found, True
    program = server.compile(module, replicas, partitions, traced=traced)
    programs.put(module, replicas, partitions, program)
    return program, False


def program_key(module: Module, replicas: int, partitions: int, *, traced: bool = False) -> str:
    """A name for everything that the compiled program depends on."""
    registered = "".join(f"\n{kind} {name!r}" for name, kind in declarations(user_targets(module)))
    kind = " traced" * traced + " filled" * is_filled()
    return text_key(print_module(_without_metadata(module)), f"{replicas} x {partitions}{registered}{kind}")


def text_key(*texts: str) -> str:
    """A name for these texts, this CPU and this version of the compiler."""
    digest = hashlib.sha256()
    for part in (*texts, _cpu(), _compiler()):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _without_metadata(module: Module) -> Module:
    computations = tuple(
        dataclasses.replace(
            computation,
            instructions=tuple(i.replace(metadata=None) if i.metadata else i for i in computation),
        )
        for computation in module.computations
    )
    return module.replace(computations=computations, frames=type(module.frames)(), source=None)


@cache
def _cpu() -> str:
    """The CPU and its features without asking LLVM, which the driver does not load."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    return "\n".join(line for line in lines if line.partition("\t")[0].strip(" :") in wanted)


@cache
def _compiler() -> str:
    """Hash of distxla's source, and the versions of what generates code."""
    digest = hashlib.sha256()
    package = Path(distxla.__file__).parent
    folders = [package, *(p for p in (package / "scheduler", package / "collectives") if p.is_symlink())]
    for folder in folders:
        for path in sorted(folder.resolve().rglob("*.py")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    versions = []
    for name in ("llvmlite", "scipy-openblas32"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            versions.append(f"{name} ?")
    return f"{digest.hexdigest()} {' '.join(versions)} {platform.machine()}"


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


__all__ = ["ProgramCache", "cache_folder", "compile_cached", "program_key", "text_key"]
