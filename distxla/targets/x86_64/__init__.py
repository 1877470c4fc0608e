"""x86-64 under Linux: object code by LLVM, its image, the libraries that it calls."""
