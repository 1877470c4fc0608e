"""Images, memory and libraries of this machine, whatever its processor: Linux, ELF, glibc, OpenBLAS, NumPy."""
