"""LLVM IR of a plan: scalars, loops, kernels, and the entry that runs them."""
