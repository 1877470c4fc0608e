"""Let loops over equal dimension sizes become one loop with several results."""

from __future__ import annotations

from collections.abc import Hashable

from distxla.compiler.passes.build_fusions import Group
from distxla.compiler.passes.in_flight_operations import InFlightOperations
from distxla.ir.computation import Computation
from distxla.ir.op import Lowering
from distxla.ir.order import ancestors

MAX_ROOTS = 8
MAX_EVALUATIONS = 256


def merge_fusions(computation: Computation, groups: list[Group], pairs: InFlightOperations) -> list[Group]:
    """Merge groups with equal loops that share an operand, or of which one only feeds the other.

    Groups never wait for each other afterwards: a merge happens only where no other instruction is between them.
    """
    if len(groups) < 2:
        return groups
    return _Merging(computation, groups, pairs).run()


class _Merging:
    def __init__(self, computation: Computation, groups: list[Group], pairs: InFlightOperations) -> None:
        self.computation = computation
        self.pairs = pairs
        self.groups = groups
        self.position = {instruction.name: i for i, instruction in enumerate(computation)}
        self.above = ancestors(computation.instructions)  # updated as roots are tied together
        self.owner = {root: group for group in groups for root in group.roots}

    def run(self) -> list[Group]:
        by_loop: dict[Hashable, list[Group]] = {}
        for group in self.groups:
            by_loop.setdefault(self.loop(group), []).append(group)
        gone: set[int] = set()
        for key, candidates in by_loop.items():
            if key is None:
                continue
            for i, group in enumerate(candidates):
                if id(group) in gone:
                    continue
                for other in candidates[i + 1 : i + 9]:
                    if id(other) not in gone and self.may_merge(group, other):
                        self.merge(group, other)
                        gone.add(id(other))
        return [group for group in self.groups if id(group) not in gone]

    def loop(self, group: Group) -> Hashable:
        """Equal for groups whose roots one loop nest can compute; None for those that stay alone."""
        root = self.computation[group.roots[0]]
        if root.control_predecessors or root.shape.is_tuple or root.shape.is_dynamic:
            return None
        if root.op.lowering is Lowering.REDUCTION:
            operand = self.computation[root.operands[0]]
            return ("reduction", operand.shape.dims, getattr(root.op, "dimensions", None))
        return ("element", root.shape.dims)

    def may_merge(self, first: Group, second: Group) -> bool:
        """first precedes second."""
        if len(first.roots) + len(second.roots) > MAX_ROOTS:
            return False
        if first.evaluations + second.evaluations > MAX_EVALUATIONS:
            return False
        if any(self.pairs.separate(a, b) for a in first.roots for b in second.roots):
            return False
        first_bits = sum(1 << self.position[r] for r in first.roots)
        second_bits = sum(1 << self.position[r] for r in second.roots)
        if any(self.above[r] & second_bits for r in first.roots):
            return False
        if any(self.above[r] & first_bits for r in second.roots):
            return self.feeds_only(first, second, first_bits)
        return bool(self.reads(first) & self.reads(second))

    def feeds_only(self, first: Group, second: Group, first_bits: int) -> bool:
        """Whether second reads first's results at its own index, and nothing between the two does."""
        if any(self.computation[r].op.lowering is Lowering.REDUCTION for r in (*first.roots, *second.roots)):
            return False
        users = {u for r in first.roots for u in self.computation.users[r]}
        for member, paths in second.paths.items():
            if member in users and (paths != {()} or not self.computation[member].op.elements.is_elementwise):
                return False
        # Whatever second needs, other than its own members, must not need first.
        others = self.outside(second) - set(first.roots)
        return not any(self.above[name] & first_bits for name in others)

    def outside(self, group: Group) -> set[str]:
        return {o for m in group.paths for o in self.computation[m].operands if o not in group.paths}

    def reads(self, group: Group) -> set[str]:
        """Arrays that the group loads, other than single elements."""
        return {name for name in self.outside(group) if self.computation[name].shape.size > 1}

    def merge(self, first: Group, second: Group) -> None:
        """Tie second to first; from now on everything that needs one needs the other's ancestors, too."""
        for name, paths in second.paths.items():
            first.paths.setdefault(name, set()).update(paths)
        first.roots.extend(second.roots)
        roots = sum(1 << self.position[r] for r in first.roots)
        above = 0
        for root in first.roots:
            above |= self.above[root]
        above &= ~roots
        tied = set(first.roots)
        for instruction in self.computation.instructions[min(self.position[r] for r in tied) :]:
            name = instruction.name
            bits = self.above[name]
            if name in tied:
                self.above[name] = bits | above
            elif (needed := bits & roots) and needed != roots:  # one that needs all roots has their ancestors
                self.above[name] = bits | above | roots
