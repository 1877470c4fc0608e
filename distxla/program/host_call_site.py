"""Calls of functions in the driver's process, as the compiled program makes them and the driver answers them."""

from __future__ import annotations

from distxla.ir.shape import Shape
from distxla.ir.stream_key import FIRST_HOST_CALL
from distxla.lazy_dataclass import dataclass
from distxla.location import Location

FunctionKey = int | str
"""The number of a JAX callback, or the name of another custom-call's target."""


@dataclass(frozen=True)
class HostCallSite:
    """A call of a function in the driver's process. number: among the module's.  key: of the function.

    operands, results: shapes; a token among them has no value.  channel: on which the results go to the device.
    fills: whether the function takes the results' arrays behind the operands, and fills them.  shared: (result,
    operand) that are then one array.
    """

    number: int
    key: FunctionKey
    instruction: str
    location: Location | None
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    fills: bool = False
    shared: tuple[tuple[int, int], ...] = ()

    @property
    def channel(self) -> int:
        return FIRST_HOST_CALL + 1 + self.number

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """The results that are no tokens."""
        return tuple(shape for shape in self.results if shape.is_array)
