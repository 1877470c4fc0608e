"""Random programs by distxla's compiled code and by XLA CPU: the same bits, or as close as the accuracy table says.

    make fuzz-xla                              1,000 programs; MODULES=100, SEED=7
    python -m tests.fuzz.xla --target nvptx    kernels for a GPU, in the emulator
    python -m tests.fuzz.xla --replay 7000012  one program again, both results shown where they differ

Numbers are drawn so that most arithmetic is exact (exact_values.py), and every order of a sum has the same bits; a
function that is not exact is applied last. So a wrong bit is a wrong program, not an order of rounding. Each program
runs twice: as it is, and with its instructions in other computations (regrouped.py).
"""
