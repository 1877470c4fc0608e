"""What test_batch_norm.py shares with other tests."""

from __future__ import annotations

from tests.ops.program_case import one_instruction

EPSILON = 0.001

OPCODES = ("batch-norm-training", "batch-norm-inference", "batch-norm-grad")


def program(opcode: str, element: str, dims: tuple[int, ...], feature: int) -> str:
    array, vector = f"{element}[{','.join(map(str, dims))}]", f"{element}[{dims[feature]}]"
    operands = {
        "batch-norm-training": [array, vector, vector],
        "batch-norm-inference": [array, vector, vector, vector, vector],
        "batch-norm-grad": [array, vector, vector, vector, array],
    }[opcode]
    result = array if opcode == "batch-norm-inference" else f"({array}, {vector}, {vector})"
    return one_instruction(f"{result} {opcode}(@), epsilon={EPSILON}, feature_index={feature}", operands)
