"""The code generator's interface of a target whose kernels run on a grid: what the host's code does about them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from llvmlite import ir

from distxla.program.artifact import MatrixProduct


class ArrayKind(Enum):
    """Arrays of a program, each kind with numbers of its own."""

    PARAMETER = "parameters"
    RESULT = "results"
    SHARED = "shared"  # arenas, of Context.shared
    CONSTANT = "constants"  # in the order in which the program gives them


class GridCalls(Protocol):
    """Kernels' launches, and their memory. `context` is the program's; an `address` (i64) is one of that memory.

    `builder` ends behind the emitted code. Methods that return a value that they don't describe return a Status, i32:
    unless it is OK, the program's call must return it.
    """

    def emit_begin(self, builder: ir.IRBuilder, context: ir.Value, constants: int) -> ir.Value:
        """Give all arrays of the call an address: before everything else of it. constants: how many there are."""

    def emit_constant(
        self, builder: ir.IRBuilder, context: ir.Value, number: int, place: ir.Value, size: int
    ) -> ir.Value:
        """Copy a constant from its place on the host, unless an earlier call did."""

    def emit_wait(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        """Wait until all launches and copies of the call are done."""

    # --- addresses, valid in the call

    def emit_arena(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value: ...

    def emit_address(self, builder: ir.IRBuilder, context: ir.Value, kind: ArrayKind, number: int) -> ir.Value: ...

    def emit_scratch(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        """Of the working memory that one kernel after the other uses."""

    def emit_is_one_of_several(self, builder: ir.IRBuilder, context: ir.Value) -> ir.Value:
        """Whether devices of this host run their kernels on other grids than this one, i1; the same for all of them."""

    # --- addresses that the other devices of this host understand, i64: they are posted in place of offsets

    def emit_export(self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value) -> ir.Value:
        """Of an address of the call's own arrays. Never 0, which is posted for an empty array."""

    def emit_import(
        self, builder: ir.IRBuilder, context: ir.Value, device: ir.Value, exported: ir.Value, place: ir.Value
    ) -> ir.Value:
        """Store the address here of what a device (i32, of the run) has exported at `place`; 0 for 0. A Status.

        It is valid until the round ends in which it was posted.
        """

    # --- queued, in their order

    def emit_launch(
        self,
        builder: ir.IRBuilder,
        context: ir.Value,
        step: int,
        launch: int,
        shape: tuple[int, int],
        addresses: Sequence[ir.Value],
    ) -> ir.Value:
        """Run a function of the grid's with the context's address, these, and that of the scratch memory.

        step: its number in GridCode.launching.  launch: the function's, among all launches of
        GridCode.launched.  shape: blocks and threads.
        """

    def emit_has_products(self, builder: ir.IRBuilder, context: ir.Value, product: MatrixProduct) -> ir.Value | None:
        """Whether `emit_product` is to be used, i1; None: never for such a one."""

    def emit_product(
        self,
        builder: ir.IRBuilder,
        context: ir.Value,
        step: int,
        product: MatrixProduct,
        addresses: tuple[ir.Value, ir.Value, ir.Value],
    ) -> ir.Value:
        """Multiply matrices by a library. step: as of `emit_launch`.  addresses: of the first elements of a, b, c."""

    def emit_upload(
        self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value, place: ir.Value, size: int
    ) -> ir.Value:
        """Copy from a place on the host, which may be written behind this."""

    def emit_copy(
        self, builder: ir.IRBuilder, context: ir.Value, target: ir.Value, source: ir.Value, size: int
    ) -> ir.Value:
        """Copy within the memory; nothing if both addresses are the same. They must not overlap otherwise."""

    def emit_fill(self, builder: ir.IRBuilder, context: ir.Value, address: ir.Value, value: int, size: int) -> ir.Value:
        """Set bytes."""

    # --- at once

    def emit_download(
        self, builder: ir.IRBuilder, context: ir.Value, place: ir.Value, address: ir.Value, size: int
    ) -> ir.Value:
        """Copy to a place on the host, once all before it is done."""
