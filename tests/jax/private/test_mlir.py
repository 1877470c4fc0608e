"""Changes of StableHLO before XLA takes it."""

from __future__ import annotations

import pytest

pytest.importorskip("jaxlib")

from distxla.jax.private import mlir as private_mlir

MARKED = """
module @marked {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = stablehlo.add %x, %x {mhlo.frontend_attributes = {inlineable = "xla_late"}} : tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
"""


def test_marks_of_calls_that_xla_compiles_apart_are_removed_from_text() -> None:
    """MLIR reads it only with the dialect of functions."""
    changed = private_mlir.without_late_calls(MARKED.encode())
    assert changed.startswith(b"ML\xefR")
    assert b"xla_late" not in changed
