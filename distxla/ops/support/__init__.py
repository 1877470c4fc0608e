"""Code that several ops share: their attributes, kernels, rewrites and rules."""
