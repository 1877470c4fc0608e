"""The interface of the scalar emitter for its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir

from distxla.compiler.lower.index import IndexCode, IndexExpression
from distxla.compiler.lower.scalar_expression import ScalarExpr
from distxla.compiler.lower.scalar_value import ScalarValue
from distxla.ir.element_type import ElementType
from distxla.ops.support.emit import ArrayRef

IndexLike = IndexExpression | int
Index = Sequence[IndexLike]


class ScalarCode(Protocol):
    """Scalar code at the builder's position: `emitter.ScalarEmitter`. reassociate: whether sums may be reordered."""

    builder: ir.IRBuilder
    indices: IndexCode
    reassociate: bool

    def expr(self, value: ir.Value) -> ScalarExpr: ...

    def constant(self, value: Any, element_type: ElementType) -> ScalarValue: ...

    def index(self, value: int) -> IndexExpression: ...

    def i64(self, index: IndexLike) -> ir.Value: ...

    def element_pointer(self, pointer: ir.Value, index: IndexLike, element_type: ElementType) -> ir.Value: ...

    def load(self, pointer: ir.Value, index: IndexLike, element_type: ElementType) -> ScalarValue: ...

    def store(self, pointer: ir.Value, index: IndexLike, value: ScalarValue) -> None: ...

    def apply(
        self, computation: str, *arguments: ScalarValue, result: str | None = None
    ) -> tuple[ScalarValue, ...]: ...

    def scalar_array(self, value: ScalarValue) -> ArrayRef: ...
