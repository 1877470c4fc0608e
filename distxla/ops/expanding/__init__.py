"""How `ops.support.expansion.Build` writes several instructions down, by the opcodes that it needs for them."""
