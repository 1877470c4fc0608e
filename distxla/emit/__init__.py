"""LLVM IR: what native functions are written with."""
