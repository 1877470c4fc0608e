"""One class an opcode: attributes, shape rule, numbered constraints, NumPy evaluation, emission, documentation."""
