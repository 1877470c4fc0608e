"""`Pass`: what every rewriting of modules is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from distxla.ir.module import Module


@dataclass(frozen=True)
class Pass(ABC):
    """A rewriting of modules. Ensures: equal results, bit for bit; the order of effects is kept."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, module: Module) -> Module:
        """The rewritten module; the same object when nothing changed."""
