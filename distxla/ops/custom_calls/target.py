"""`Target`: executes the custom-calls of a name, and the registry of all names that this version knows.

    @target("lapack_spotrf_ffi", "lapack_dpotrf_ffi")
    class Potrf(Target):
        def obstacle(self, call): ...
        def evaluate(self, call, run, matrix): ...
        def emit_kernel(self, call, emit, results, matrix): ...

A file in this folder is imported when the first custom-call is looked at, one in gpu/ when the first is whose name
begins as those of GPU libraries do.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, ClassVar, Protocol, TypeVar

from distxla.errors import DistxlaError, UnsupportedOpError
from distxla.ir.instruction import Instruction
from distxla.ir.shape import Shape
from distxla.ir.window import ConvolutionDimensions, Window
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls.ffi.config import BackendConfig, read_config
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation

T = TypeVar("T", bound="type[CustomCallTarget]")


class CustomCallAttributes(Protocol):
    """The properties of a custom-call's op that targets read."""

    @property
    def custom_call_target(self) -> str: ...
    @property
    def api_version(self) -> str: ...
    @property
    def called_computations(self) -> tuple[str, ...]: ...
    @property
    def operand_layout_constraints(self) -> tuple[Shape, ...] | None: ...
    @property
    def output_to_operand_aliasing(self) -> tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...]: ...
    @property
    def window(self) -> Window: ...
    @property
    def dim_labels(self) -> ConvolutionDimensions | None: ...
    @property
    def feature_group_count(self) -> int: ...
    @property
    def batch_group_count(self) -> int: ...


@dataclass(frozen=True)
class Call:
    """One custom-call instruction as its target sees it.

    instruction: with its annotations; its op is a CustomCall.  operands: the operands' shapes, tuples unflattened.
    """

    instruction: Instruction
    operands: tuple[Shape, ...]

    @property
    def op(self) -> CustomCallAttributes:
        return self.instruction.op  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The custom_call_target."""
        return self.op.custom_call_target

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return self.instruction.shape

    @cached_property
    def config(self) -> BackendConfig:
        """The parsed backend_config; ConfigError where it can't be read (which `CustomCall` makes an obstacle)."""
        return read_config(self.instruction.backend_config)


class CustomCallTarget:
    """Executes the custom-calls of one name, or of a family of names. Instances have no state that changes."""

    # arrays may have dynamic dimensions: compiler/passes/pad_dynamic_dimensions.py pads them
    takes_dynamic: ClassVar[bool] = False

    def obstacle(self, call: Call) -> str | None:
        """The reason why this version can't execute the call, in a sentence; None if it can.

        Shapes and configuration come from other people's text: everything that the other methods rely on is looked at
        here. A ConfigError counts as an answer.
        """
        return None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        """The result by NumPy, as `Op.evaluate` gives it."""
        raise self.unsupported(call)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        """Fill the result buffers; buffers are leaves (tokens have none), as for `Op.emit_kernel`."""
        raise self.unsupported(call)

    def unsupported(self, call: Call) -> DistxlaError:
        return UnsupportedOpError(f'this version cannot execute custom-call of "{call.name}"')


_targets: dict[str, CustomCallTarget] = {}
GPU_LIBRARIES = ("__cu", "__op$", "cu", "xla.gpu.ext.")  # the names in gpu/ begin so, and no others


def target(*names: str) -> Callable[[T], T]:
    """Class decorator: an instance of the class executes the custom-calls of these names."""

    def enter(target_class: T) -> T:
        instance = target_class()
        for name in names:
            if name in _targets:
                raise ValueError(f"custom-call target {name} is registered twice")
            _targets[name] = instance
        return target_class

    return enter


def built_in_target(name: str) -> CustomCallTarget | None:
    """The target of that name that comes with distxla; None if there is none."""
    _load("")
    if name.startswith(GPU_LIBRARIES):
        _load(".gpu")
    return _targets.get(name)


def built_in_targets() -> dict[str, CustomCallTarget]:
    """The targets that come with distxla, by name."""
    _load("")
    _load(".gpu")
    return _targets


@cache
def _load(folder: str) -> None:
    """Import the files of this package, or of a folder of it: they enter their targets."""
    package = importlib.import_module(f"{__package__}{folder}")
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not found.ispkg:
            importlib.import_module(found.name)
