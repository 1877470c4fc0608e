"""A set of instructions that will share one loop."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass, field

Path = tuple[object, ...]


@dataclass(eq=False)
class Group:
    """A fusion in the making: roots (results that go to memory) and members (the roots included), by name.

    paths: for each member the indices at which one iteration reads it, as paths from the roots; elements that are
    read at the root's own index have the path ().
    """

    roots: list[str]
    iterations: int  # elements that the loop visits
    paths: dict[str, set[Path]] = field(default_factory=dict)

    @property
    def evaluations(self) -> int:
        return sum(map(len, self.paths.values()))
