"""`Step`: every stage between the module and its plan is one; `Pass`: one that rewrites the module."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

from distxla.ir.counts import UNKNOWN, Counts
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, field
from distxla.program.host_call_site import FunctionKey, HostCallSite
from distxla.program.options import InPlace


@dataclass(frozen=True)
class Compilation:
    """The state that one step hands to the next.

    result: the shape of the entry's result; dimensions are marked whose sizes the program gives at run time.
    counts: of the run.  in_place: (result leaf, parameter leaf) that may have the same memory in a call.  host_calls:
    keys of the driver's functions; None where the module's calls of such functions are to stay.  host_call_sites: the
    calls that have become host transfers.
    """

    module: Module
    result: Shape
    counts: Counts = UNKNOWN
    in_place: InPlace = ()
    host_calls: Collection[FunctionKey] | None = None
    host_call_sites: tuple[HostCallSite, ...] = ()

    @classmethod
    def of(
        cls,
        module: Module,
        counts: Counts = UNKNOWN,
        in_place: InPlace = (),
        host_calls: Collection[FunctionKey] | None = None,
    ) -> Compilation:
        # a module that is not verified yet may lack its entry computation, or that its root
        entry = module.by_name.get(module.entry)
        root = None if entry is None else entry.by_name.get(entry.root)
        return cls(module, Shape.tuple(()) if root is None else root.shape, counts, in_place, host_calls)

    def with_module(self, module: Module) -> Compilation:
        return self if module is self.module else dataclasses.replace(self, module=module)


def word(*words: str) -> Any:
    """A field of a step that is one of these words, by default the first. Other fields are whole numbers."""
    return field(default=words[0], metadata={"words": words})


@dataclass(frozen=True)
class Step(ABC):
    """One step of the pipeline. name: in its text; its fields are its parameters there, `max_bytes` as `max-bytes`.

    `compile --list-passes` prints the first sentence of its docstring.
    """

    name: ClassVar[str]

    @abstractmethod
    def apply(self, compilation: Compilation) -> Compilation:
        """The compilation after this step; the same object when nothing changed."""

    @property
    def parameters(self) -> dict[str, int | str]:
        """By name in the pipeline's text."""
        return {_named(item): getattr(self, item.name) for item in dataclasses.fields(self)}

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The words that each parameter which is a word may be, the default one first."""
        return {_named(item): found for item in dataclasses.fields(self) if (found := item.metadata.get("words"))}

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        paragraph = " ".join((inspect.getdoc(type(self)) or "").split("\n\n")[0].split())
        return paragraph.partition(". ")[0].rstrip(".") + "."

    def __str__(self) -> str:
        """As in the pipeline's text, with the parameters that are not the default ones."""
        default = type(self)().parameters
        given = " ".join(f"{name}={value}" for name, value in self.parameters.items() if value != default[name])
        return f"{self.name}{{{given}}}" if given else self.name


@dataclass(frozen=True)
class Pass(Step):
    """A rewriting of modules. Ensures: equal results, bit for bit; the order of effects is kept."""

    @abstractmethod
    def run(self, module: Module) -> Module:
        """The rewritten module; the same object when nothing changed."""

    def apply(self, compilation: Compilation) -> Compilation:
        return compilation.with_module(self.run(compilation.module))


def _named(item: dataclasses.Field[Any]) -> str:
    return item.name.replace("_", "-")
