"""Operations that run a computation of scalars over arrays."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.builder.accepted_values import as_flag, as_integer, as_integers, as_sequence
from distxla.builder.blame import broken_rule
from distxla.builder.comparisons import Comparisons
from distxla.builder.indexing import Indexing
from distxla.builder.recorder import ComputationLike
from distxla.builder.windows import PaddingLike, as_window
from distxla.builder.xla_op import OperandLike, XlaOp
from distxla.ir.element_type import ElementType
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ops.broadcast import Broadcast
from distxla.ops.map import Map
from distxla.ops.reduce import Reduce
from distxla.ops.reduce_window import ReduceWindow
from distxla.ops.select_and_scatter import SelectAndScatter
from distxla.ops.sort import Sort, TopK


class Reductions(Indexing, Comparisons):
    """Pages Reduce, ReduceWindow, SelectAndScatter, Map, Sort.

    operands and init_values: one of each, or as many in two lists; the result of several is a tuple, and computations
    take all accumulated values first, then all elements.
    """

    def reduce(
        self,
        operands: OperandLike | Sequence[OperandLike],
        init_values: OperandLike | Sequence[OperandLike],
        computation: ComputationLike,
        dimensions: Sequence[int],
    ) -> XlaOp:
        """The elements along `dimensions` combined by `computation`, of which the initial values are the identity."""
        arrays = self._one_or_more(operands)
        initial = self._one_or_more(init_values, arrays)
        to_apply = self._reducer(computation, arrays)
        op = Reduce(dimensions=as_integers(dimensions, "dimensions"), to_apply=to_apply)
        return self._add(op, [*arrays, *initial])

    def reduce_all(self, operand: OperandLike, init_value: OperandLike, computation: ComputationLike) -> XlaOp:
        """All elements combined to a scalar."""
        x = self._array(operand)
        return self.reduce(x, init_value, computation, tuple(range(x.rank)))

    def reduce_window(
        self,
        operands: OperandLike | Sequence[OperandLike],
        init_values: OperandLike | Sequence[OperandLike],
        computation: ComputationLike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int] | None = None,
        padding: PaddingLike = "valid",
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
    ) -> XlaOp:
        """The elements under each place of a window combined.

        padding: "same", "valid", or (low, high) initial values for each dimension.
        """
        arrays = self._one_or_more(operands)
        initial = self._one_or_more(init_values, arrays)
        window = as_window(
            arrays[0].shape.dims, window_dimensions, window_strides, padding, base_dilations, window_dilations
        )
        op = ReduceWindow(window=window, to_apply=self._reducer(computation, arrays))
        return self._add(op, [*arrays, *initial])

    def reduce_window_with_general_padding(
        self,
        operands: OperandLike | Sequence[OperandLike],
        init_values: OperandLike | Sequence[OperandLike],
        computation: ComputationLike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int] | None = None,
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
        padding: PaddingLike = "valid",
    ) -> XlaOp:
        """`reduce_window` with the arguments in the order of XLA's method of this name."""
        return self.reduce_window(
            operands, init_values, computation, window_dimensions, window_strides, padding, base_dilations,
            window_dilations,
        )  # fmt: skip

    def select_and_scatter(
        self,
        operand: OperandLike,
        select: ComputationLike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int] | None,
        padding: PaddingLike,
        source: OperandLike,
        init_value: OperandLike,
        scatter: ComputationLike,
    ) -> XlaOp:
        """Each element of `source` goes to the element of the operand that `select` chose under its window.

        Elements start as init_value; `scatter` combines those that are written.
        """
        x = self._array(operand)
        pair = [Shape(x.dtype)] * 2
        op = SelectAndScatter(
            window=as_window(x.shape.dims, window_dimensions, window_strides, padding),
            select=self._computation(select, pair, "select"),
            scatter=self._computation(scatter, pair, "scatter"),
        )
        return self._add(op, [x, self._array(source, x.dtype), self._array(init_value, x.dtype)])

    def map(
        self,
        operands: OperandLike | Sequence[OperandLike],
        computation: ComputationLike,
        dimensions: Sequence[int] | None = None,
        static_operands: Sequence[OperandLike] = (),
    ) -> XlaOp:
        """A computation of scalars applied to the elements of equally shaped arrays.

        dimensions: all of them in order, or left out.  static_operands: scalars that every application gets, too.
        """
        arrays = self._one_or_more(operands)
        dims = arrays[0].shape.dims
        everywhere = []
        for given in as_sequence(static_operands, "static_operands"):
            value = self._array(given)
            if value.rank:
                raise broken_rule(f"map.static: {value.shape} is not a scalar", "static_operands")
            everywhere.append(self._add(Broadcast(), [value], Shape(value.dtype, dims)))
        inputs = [*arrays, *everywhere]
        op = Map(
            dimensions=tuple(range(len(dims))) if dimensions is None else as_integers(dimensions, "dimensions"),
            to_apply=self._computation(computation, [Shape(x.dtype) for x in inputs], "computation"),
        )
        return self._add(op, inputs)

    def sort(
        self,
        operands: OperandLike | Sequence[OperandLike],
        comparator: ComputationLike | None = None,
        dimension: int = -1,
        is_stable: bool = False,
    ) -> XlaOp:
        """The operands sorted together along a dimension, the last one if left out.

        comparator: (a0, b0, a1, b1, ..) -> whether the a's come before the b's. Without one, ascending by the first
        operand, floats in their total order.
        """
        arrays = self._one_or_more(operands)
        scalars = [Shape(x.dtype) for x in arrays for _ in range(2)]
        given = as_integer(dimension, "dimension")
        if comparator is None:
            comparator = self._less_than(scalars)
        op = Sort(
            dimensions=(given + arrays[0].rank if given == -1 and arrays[0].rank else given,),
            is_stable=as_flag(is_stable, "is_stable"),
            to_apply=self._computation(comparator, scalars, "comparator"),
        )
        return self._add(op, arrays)

    def top_k(self, operand: OperandLike, k: int, largest: bool = True) -> XlaOp:
        """The k largest (smallest) elements of each line of the last dimension, best first, and their indices."""
        return self._add(TopK(k=as_integer(k, "k"), largest=as_flag(largest, "largest")), [self._array(operand)])

    def _reducer(self, computation: ComputationLike, arrays: Sequence[XlaOp]) -> str:
        scalars = [Shape(x.dtype) for x in arrays]
        return self._computation(computation, [*scalars, *scalars], "computation")

    def _less_than(self, scalars: Sequence[Shape]) -> Module:
        """Compares parameters 0 and 1 by LT in total order; complex types have none."""
        element: ElementType = scalars[0].dtype
        if element.is_complex:
            raise broken_rule(f"sort.comparator: {element} has no order; a comparator is needed", "operands")
        inner = self.create_sub_builder("less_than")
        parameters = [inner.parameter(k, shape, f"p{k}") for k, shape in enumerate(scalars)]
        return inner.build(inner.lt_total_order(parameters[0], parameters[1]))
