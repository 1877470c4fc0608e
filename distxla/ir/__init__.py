"""Immutable data that describes an HLO module. Knows no opcode, no text, no LLVM."""
