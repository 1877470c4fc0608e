"""The interface of a target. A target is a folder beside this file, whose package has a `TARGET`.

It comes in parts, because not every process needs all of them: replicas load no compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from distxla.program.artifact import CompiledProgram
from distxla.targets.local_rank import ALONE, LocalRank

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget


class Target(Protocol):
    """A processor, its operating system and its libraries. The parts are imported when they are asked for."""

    @property
    def name(self) -> str:
        """The folder's."""

    @property
    def backend(self) -> str | None:
        """Its name for `--backend` and `Cluster(backend=)`; None if no cluster runs on it. The targets of processors
        share one."""

    @property
    def uses_gpus(self) -> bool:
        """Whether each device's process uses a GPU of its machine."""

    @property
    def variant(self) -> str:
        """Further properties that compiled code depends on, for keys of the cache."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Of the environment, on which `variant` depends."""

    @property
    def code(self) -> CodeTarget:
        """The compiler's side. Loads LLVM."""

    @property
    def loader(self) -> Loader: ...
    @property
    def host(self) -> Host:
        """The machine; of processors' targets only."""


KernelErrorHandler = Callable[[str, str], None]  # why a kernel failed, and its frames


class LoadedImage(Protocol):
    """A program in memory. `close` unmaps it: no thread may be inside of it or call it afterwards."""

    program: CompiledProgram

    def address_of(self, symbol: str) -> int:
        """The address of a function or of other data; KeyError if the program has no such symbol."""

    def close(self) -> None:
        """Unmap; twice is fine."""


class Loader(Protocol):
    """Programs in this process."""

    def load_image(
        self,
        program: CompiledProgram,
        resolve: Callable[[str], int] | None = None,
        file: tuple[int, int] | None = None,
        report: KernelErrorHandler | None = None,
        local: LocalRank = ALONE,
    ) -> LoadedImage:
        """Map the program's image and make it ready to run.

        resolve: the address of an imported function (default: `resolve_import`).  file: descriptor and bytes of a file
        that holds the image, to be mapped in place of its data.  report: takes a kernel's error, from targets
        whose kernels can.  local: decides which GPU is used.  Raises CompileError where an import is unknown, OSError
        where memory or permission is missing.
        """

    def resolve_import(self, name: str) -> int:
        """The address of a function of the target's libraries; CompileError for a name that none of them has."""


class Atomics(NamedTuple):
    """Accesses to aligned words at addresses of this process, as Python calls them; each takes about 0.1 us.

    A plain store of Python promises no order: some processors keep it, others do not.
    """

    read: Callable[[int], int]  # a u32, acquire: all that was written before its publication is visible
    publish: Callable[[int, int], None]  # a u32, release: an acquiring reader sees all writes before it
    publish_fenced: Callable[[int, int], None]  # a u32, seq_cst: also in one order with all other such stores
    read_long: Callable[[int], int]  # a u64, acquire
    publish_long: Callable[[int, int], None]  # a u64, release
    read_long_fenced: Callable[[int], int]  # a u64, seq_cst: nothing older than the last such store
    # a u64, a full fence; takes what is expected, and what takes its place; what was there
    compare_exchange_long: Callable[[int, int, int], int]
    fence: Callable[[], None]  # acquire: earlier loads, plain ones too, come before later accesses


class Host(Protocol):
    """The machine that replicas run on: words and waiting from Python, its libraries, the identity of its processor."""

    @property
    def address_bytes(self) -> int:
        """That one process can address."""

    @property
    def thread_variables(self) -> tuple[str, ...]:
        """Environment variables that say how many threads NumPy's library starts; the first that is set decides."""

    def atomics(self) -> Atomics:
        """Access to shared words. The first call of a process maps their code: OSError where it may not."""

    def sleep_on(self, address: int, value: int, seconds: float) -> None:
        """Sleep while the u32 at an address of this process is `value`, at most `seconds`; may return early."""

    def wake_all(self, address: int) -> int:
        """Wake all threads that sleep on the u32 at an address of this process, which was changed before; how many."""

    def stack_tops(self, count: int, size: int) -> list[int]:
        """Where new stacks of `size` bytes (whole pages) end, for fibers. Below each one a page can't be accessed.

        They stay until the process ends, and cost memory where they are touched. OSError where memory is missing.
        """

    def set_library_threads(self, count: int) -> None:
        """Let NumPy's linear algebra use so many threads in this process, whatever it was loaded with."""

    def libraries(self) -> tuple[str, ...]:
        """The installed packages whose functions compiled code calls: their versions are in keys of the cache."""

    def processor(self) -> str:
        """All that compiled code may depend on, as text, without LLVM: for keys of the cache."""

    def instruction_sets(self) -> frozenset[str]:
        """The processor features that compiled code may use; a machine that has all of them can run it."""
