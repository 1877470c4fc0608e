"""Turn a program with bounded dynamic dimensions into a static one on padded arrays."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from distxla.compiler.passes import dynamic_computation, dynamic_movement  # noqa: F401, imported for the rules that they enter
from distxla.compiler.passes.dynamic_site import (
    RULES,
    DimensionSizes,
    DynamicSite,
    Sizes,
    bounds,
    dynamic_shape,
    is_static,
)
from distxla.ir.computation import Computation
from distxla.ir.dynamic_shape import static_shape
from distxla.ir.effects import Effects
from distxla.ir.element_type import S32
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering
from distxla.ir.shape import ProgramShape, Shape
from distxla.ops.control_flow import Conditional, While
from distxla.ops.parameter import Parameter
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.rewrites.step import Compilation, Pass

Flags = tuple[tuple[bool, ...], ...]  # by leaf and dimension: whether an s32[] size goes with the value


class PadDynamicDimensions(Pass):
    """Give every array its bounds' dimension sizes and let the run-time sizes travel beside it as s32[] values.

    Requires: no calls but those of control flow and of scalar computations.  Ensures: no dynamic dimension is left; the
    same elements within the run-time sizes. Elements beyond them are arbitrary.

    The entry takes the dimension sizes of its dynamic parameter dimensions as further s32[] parameters, behind the
    others, in the order of leaves and dimensions, and gives those of its results behind the results' leaves. Called
    computations take and give tuples that hold both.  Raises UnsupportedOpError for ops without a rule.
    """

    name: ClassVar[str] = "pad-dynamic-dimensions"

    def run(self, module: Module) -> Module:
        return self.apply(Compilation.of(module)).module

    def apply(self, compilation: Compilation) -> Compilation:
        if not has_dynamic_dimensions(compilation.module):
            return compilation
        module, result = padded(compilation.module)
        return dataclasses.replace(compilation, module=module, result=result)


def padded(module: Module) -> tuple[Module, Shape]:
    """The static module, and the result's shape: a dimension is dynamic where the module also returns its size."""
    program = _Program(module)
    entry, result = program.entry()
    candidates = {c.name: c for c in (*module.computations, *program.done)}
    candidates[entry.name] = entry
    reached: set[str] = set()
    pending = [entry.name]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending.extend(called for i in candidates[name] for called in i.op.called_computations)
    kept = (c for c in candidates.values() if c.name in reached and c is not entry)
    return module.replace(computations=(*kept, entry), entry_layout=None), result


def flags_of(sizes: Sizes) -> Flags:
    return tuple(tuple(isinstance(e, str) for e in dimension_sizes) for dimension_sizes in sizes)


def _either(a: Flags, b: Flags) -> Flags:
    return tuple(tuple(x or y for x, y in zip(m, n, strict=True)) for m, n in zip(a, b, strict=True))


def _count(flags: Flags) -> int:
    return sum(sum(leaf) for leaf in flags)


class _Program:
    """One run over one module. done: the new computations, called ones before their callers."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = Names(module.by_name)
        self.done: list[Computation] = []
        self._variants: dict[tuple[str, Flags, Flags], str] = {}

    def program_shape(self, name: str) -> ProgramShape:
        return self.computation(name).program_shape

    def computation(self, name: str) -> Computation:
        return next((c for c in self.done if c.name == name), None) or self.module[name]

    def entry(self) -> tuple[Computation, Shape]:
        """The entry on padded arrays, and its result with the dynamic dimensions marked."""
        old = self.module.entry_computation
        rewriter = Rewriter(old)
        values: dict[str, Sizes] = {}
        number = len(old.parameters)
        for parameter in old.parameters:
            shape = parameter.shape.without_layout()
            rewriter.keep(parameter.replace(shape=static_shape(shape)))
            sizes: list[DimensionSizes] = []
            for leaf in shape.leaves():
                dimension_sizes: list[int | str] = list(leaf.dims)
                for d in range(len(leaf.dims)):
                    if leaf.dynamic and leaf.dynamic[d]:
                        added = rewriter.add(
                            parameter, Parameter(number=number), Shape(S32), (), f"{parameter.name}.size"
                        )
                        dimension_sizes[d], number = added.name, number + 1
                sizes.append(tuple(dimension_sizes))
            values[parameter.name] = tuple(sizes)
        self._body(old, rewriter, values)
        root = rewriter.resolve(old.root)
        sizes_of_root = values[old.root]
        result = dynamic_shape(rewriter[root].shape, sizes_of_root)
        return self._finished(old, rewriter, root, sizes_of_root, flags_of(sizes_of_root), old.name), result

    def called(self, name: str, taken: Flags, given: Flags | None = None) -> tuple[str, Flags]:
        """A computation that takes and gives sizes with its one parameter and its result; which sizes it gives.

        given: the sizes that it must give at least.
        """
        old = self.module[name]
        rewriter = Rewriter(old)
        values: dict[str, Sizes] = {}
        (parameter,) = old.parameters
        static = static_shape(parameter.shape.without_layout())
        rewriter.keep(parameter.replace(shape=_packed_shape(static, taken)))
        site = DynamicSite(self, rewriter, parameter, ())
        data, values[parameter.name] = unpack(site, parameter.name, static, taken)
        if data != parameter.name:
            rewriter.forward(parameter.name, data)
        self._body(old, rewriter, values)
        root = rewriter.resolve(old.root)
        flags = flags_of(values[old.root])
        if given is not None:
            flags = _either(flags, given)
        key = (name, taken, flags)
        if key not in self._variants:
            new = self._finished(old, rewriter, root, values[old.root], flags, name)
            if new == old:
                self._variants[key] = name
            else:
                fresh = self.names.fresh(name)
                self.done.append(Computation(fresh, new.instructions, new.root, new.execution_thread, new.span))
                self._variants[key] = fresh
        return self._variants[key], flags

    def _finished(
        self, old: Computation, rewriter: Rewriter, root: str, sizes: Sizes, flags: Flags, name: str
    ) -> Computation:
        site = DynamicSite(self, rewriter, rewriter[root], ())
        whole = pack(site, root, sizes, flags)
        if whole == root:
            return rewriter.finish()
        return Computation(name, tuple(rewriter.instructions.values()), whole, old.execution_thread, old.span)

    def _body(self, old: Computation, rewriter: Rewriter, values: dict[str, Sizes]) -> None:
        """Rewrite all instructions but the parameters; values: the sizes by old name."""
        for before in old:
            if before.op.role.is_parameter:
                continue
            instruction = rewriter.current(before)
            operands = [values[o] for o in before.operands]
            site = DynamicSite(self, rewriter, instruction, operands)
            present = len(rewriter.instructions)
            name, values[before.name] = self._rewritten(site)
            if instruction.control_predecessors:
                for added in list(rewriter.instructions.values())[present:]:
                    rewriter.keep(added.replace(control_predecessors=instruction.control_predecessors))
            if name != before.name:
                rewriter.forward(before.name, name)

    def _rewritten(self, site: DynamicSite) -> tuple[str, Sizes]:
        """Add instructions that compute this one on padded arrays: the name of its value, and the value's sizes."""
        op = site.instruction.op
        if isinstance(op, While):
            return self._while(op, site)
        if isinstance(op, Conditional):
            return self._conditional(op, site)
        comes_from_outside = op.effects in (Effects.FEED, Effects.CHANNEL, Effects.CUSTOM)
        if comes_from_outside and not op.sets_dimension_sizes and site.instruction.shape.is_dynamic:
            raise site.refuse(f"nothing says the dimension sizes of its result {site.instruction.shape}")
        if all(is_static(sizes) for sizes in site.sizes) and not op.sets_dimension_sizes:
            return site.keep(), bounds(site.result)
        if op.lowering is Lowering.ALIAS:
            shapes = [site.shape(o) for o in site.operands]
            return site.keep(), op.result_leaves(shapes, site.sizes)
        rule = RULES.get(type(op))
        if rule is not None:
            return rule(op, site)
        if not op.elements.is_elementwise:
            raise site.refuse()
        site.agree()
        rank = site.result.rank
        dimension_sizes = next((site.dimension_sizes(k) for k, s in enumerate(site.stated) if s.rank == rank), ())
        return site.keep(), (dimension_sizes,)

    def _while(self, op: While, site: DynamicSite) -> tuple[str, Sizes]:
        """The carried value has the sizes that either the first one or the body's result has."""
        flags = flags_of(site.sizes[0])
        while True:
            body, given = self.called(op.body, flags, flags)
            if given == flags:
                break
            flags = given
        condition, _ = self.called(op.condition, flags)
        if not _count(flags) and (body, condition) == (op.body, op.condition):
            return site.keep(), bounds(site.result)
        packed = pack(site, site.operands[0], site.sizes[0], flags)
        static = site.result
        looped = site.add(While(condition=condition, body=body), packed, shape=_packed_shape(static, flags))
        return unpack(site, looped, static, flags)

    def _conditional(self, op: Conditional, site: DynamicSite) -> tuple[str, Sizes]:
        taken = [flags_of(sizes) for sizes in site.sizes[1:]]
        flags = tuple((False,) * leaf.rank for leaf in site.result.leaves())
        for name, have in zip(op.branches, taken, strict=True):
            flags = _either(flags, self.called(name, have)[1])
        branches = [self.called(name, have, flags)[0] for name, have in zip(op.branches, taken, strict=True)]
        stand_for = dict(zip(op.branches, branches, strict=True))
        if len(stand_for) == len(op.branches):
            changed = op.rename_computations(lambda name: stand_for.get(name, name))
        else:  # a branch computation used twice, with different sizes
            changed = Conditional(branch_computations=tuple(branches))
        static = site.result
        operands = [
            pack(site, name, sizes, have)
            for name, sizes, have in zip(site.operands[1:], site.sizes[1:], taken, strict=True)
        ]
        shape = _packed_shape(static, flags)
        found = site.add(changed, site.operands[0], *operands, shape=shape)
        return unpack(site, found, static, flags)


def _packed_shape(shape: Shape, flags: Flags) -> Shape:
    """A static shape with the sizes that go with it: the elements of a tuple, or the one value, and the sizes."""
    count = _count(flags)
    if not count:
        return shape
    return Shape.tuple((*(shape.elements if shape.elements is not None else (shape,)), *[Shape(S32)] * count))


def pack(site: DynamicSite, name: str, sizes: Sizes, flags: Flags) -> str:
    """A value and the sizes for which there are flags as one value of `_packed_shape`."""
    if not _count(flags):
        return name
    own = [
        site.number(e)
        for leaf, dimension_sizes in zip(flags, sizes, strict=True)
        for f, e in zip(leaf, dimension_sizes, strict=True)
        if f
    ]
    elements = site.shape(name).elements
    parts = [name] if elements is None else [site.element(name, k) for k in range(len(elements))]
    return site.join(*parts, *own)


def unpack(site: DynamicSite, name: str, shape: Shape, flags: Flags) -> tuple[str, Sizes]:
    """A packed value's own value, of the static `shape`, and its sizes."""
    static = bounds(shape)
    if not _count(flags):
        return name, static
    length = len(shape.elements) if shape.elements is not None else 1
    parts = [site.element(name, k) for k in range(length)]
    position = iter(range(length, length + _count(flags)))
    sizes = tuple(
        tuple(site.element(name, next(position)) if f else e for f, e in zip(leaf, dimension_sizes, strict=True))
        for leaf, dimension_sizes in zip(flags, static, strict=True)
    )
    return (site.join(*parts) if shape.elements is not None else parts[0]), sizes
