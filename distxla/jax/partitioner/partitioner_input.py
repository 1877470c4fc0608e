"""The form in which a module goes to XLA's partitioner: what a front end wrote, or HLO text that this jaxlib reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.sharding import Sharding
from distxla.jax.private.names import jaxlib_version
from distxla.lazy_dataclass import dataclass, replace
from distxla.text.printer import print_module
from distxla.text.sdy import SHARDING_ATTRIBUTES

_READS_NAMED_SHARDINGS: Final = (0, 12)  # jaxlib, and newer ones
# XLA compiles a call with this mark as a module of its own, of which the partitioned caller only has the name.
_LATE_CALL: Final = ("inlineable", "xla_late")
_Rewrite: TypeAlias = Callable[[Sharding, Instruction], Sharding | None]


@dataclass(frozen=True)
class PartitionerInput:
    """module: as partition_module takes it.  use_shardy: as there."""

    module: str | bytes
    use_shardy: bool | None


def partitioner_input(module: Module) -> PartitionerInput:
    """What is partitioned for a module that has been parsed or built.

    Where it was converted from StableHLO, that: annotations within branches, loops and partly manual computations get
    lost on the way through HLO text. In HLO text Shardy's attributes stand beside the shardings that were made of them;
    Shardy takes the attributes only where there are no shardings.
    """
    if module.stablehlo is not None:
        return PartitionerInput(module.stablehlo, None)
    instructions = [i for computation in module.computations for i in computation]
    shardings = [leaf for i in instructions if i.sharding is not None for leaf in _leaves(i.sharding)]
    names = [sharding.text for sharding in shardings if sharding.text.startswith("{mesh[")]
    rewrite: _Rewrite
    use_shardy: bool | None
    if any(key in SHARDING_ATTRIBUTES for i in instructions for key, _ in i.frontend_attributes):
        rewrite, use_shardy = _dropped, True
    elif not names:
        rewrite, use_shardy = _kept, None
    elif _reads_named_shardings() and all(_has_name(sharding) for sharding in shardings):
        rewrite, use_shardy = _Named(next((_mesh(text) for text in names if _mesh(text) != "mesh[]"), "mesh[]")), True
    else:
        rewrite, use_shardy = _in_tiles, False
    changed = tuple(
        replace(computation, instructions=tuple(_prepared(i, rewrite) for i in computation.instructions))
        for computation in module.computations
    )
    return PartitionerInput(print_module(module.replace(computations=changed)), use_shardy)


def _prepared(i: Instruction, rewrite: _Rewrite) -> Instruction:
    sharding = None if i.sharding is None else rewrite(i.sharding, i)
    attributes = tuple(pair for pair in i.frontend_attributes if pair != _LATE_CALL)
    if sharding is i.sharding and attributes == i.frontend_attributes:
        return i
    return i.replace(sharding=sharding, frontend_attributes=attributes)


def _kept(sharding: Sharding, _: Instruction) -> Sharding:
    return sharding


def _dropped(sharding: Sharding, i: Instruction) -> Sharding | None:
    """Only the device that feeds or transfers is kept: Shardy has no attribute for it."""
    return sharding if i.op.effects in (Effects.FEED, Effects.CHANNEL) else None


def _in_tiles(sharding: Sharding, _: Instruction) -> Sharding:
    """The same without names of axes: older parsers of XLA don't know them, and none takes them beside tiles."""
    if sharding.kind == "tuple":
        return _tuple(_in_tiles(element, _) for element in sharding.elements)
    if sharding.kind == "replicated" or (sharding.kind == "mesh" and not sharding.tile_dims):
        return Sharding("replicated", "{replicated}")
    if sharding.kind != "mesh":
        return sharding
    sizes, devices = (",".join(map(str, numbers)) for numbers in (sharding.tile_dims, sharding.devices))
    kinds = f" last_tile_dims={{{', '.join(sharding.last_tile_dims)}}}" if sharding.last_tile_dims else ""
    return replace(sharding, kind="devices", text=f"{{devices=[{sizes}]{devices}{kinds}}}")


@dataclass(frozen=True)
class _Named:
    """`replicated` with a mesh and an entry for each dimension, without which XLA 0.12 dies."""

    mesh: str

    def __call__(self, sharding: Sharding, i: Instruction) -> Sharding:
        if sharding.kind == "tuple":
            pairs = zip(sharding.elements, i.shape.leaves(), strict=True)
            return _tuple(self._of_array(element, leaf.rank) for element, leaf in pairs)
        return self._of_array(sharding, 0 if i.shape.is_tuple else i.shape.rank)

    def _of_array(self, sharding: Sharding, rank: int) -> Sharding:
        if sharding.kind != "replicated":
            return sharding
        mesh = _mesh(sharding.text) if sharding.text.startswith("{mesh[") else self.mesh
        return replace(sharding, text=f"{{{self.mesh if mesh == 'mesh[]' else mesh}, [{', '.join(['{}'] * rank)}]}}")


def _mesh(text: str) -> str:
    return text[1 : text.index("]") + 1]


def _tuple(elements: Iterable[Sharding]) -> Sharding:
    found = tuple(elements)
    return Sharding("tuple", "{" + ", ".join(element.text for element in found) + "}", elements=found)


def _leaves(sharding: Sharding) -> Iterator[Sharding]:
    if sharding.kind == "tuple":
        for element in sharding.elements:
            yield from _leaves(element)
    else:
        yield sharding


def _has_name(sharding: Sharding) -> bool:
    return sharding.text.startswith("{mesh[") or sharding.kind == "replicated"


def _reads_named_shardings() -> bool:
    numbers = (jaxlib_version() or "").split(".")[:2]
    return all(n.isdecimal() for n in numbers) and tuple(map(int, numbers)) >= _READS_NAMED_SHARDINGS


__all__ = ["PartitionerInput", "partitioner_input"]
