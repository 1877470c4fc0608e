"""What test_examples.py shares with other tests."""

from __future__ import annotations

from tests.builder import (
    examples_collectives,
    examples_computations,
    examples_data_movement,
    examples_elementwise,
    examples_numerics,
)
from tests.builder.example import Example

EXAMPLES: list[Example] = [
    *examples_data_movement.EXAMPLES,
    *examples_elementwise.EXAMPLES,
    *examples_computations.EXAMPLES,
    *examples_numerics.EXAMPLES,
    *examples_collectives.EXAMPLES,
]
