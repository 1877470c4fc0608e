"""LLVM IR: what all that emit native functions have in common."""
