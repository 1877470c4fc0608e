"""GPU kernels on this machine's processor: the LLVM IR of a device module, compiled for it, so that no GPU is needed.

    from distxla.targets.nvptx.emulator.prepare import prepare    # loads LLVM
    from distxla.targets.nvptx.emulator.launch import ORDERS, Memory, load    # loads neither LLVM nor NumPy

    prepared = prepare(text, checked=True)    # a frozen dataclass, which can be pickled; CompileError
    module = load(prepared)
    for order in ORDERS:    # numbered, reverse, three that are shuffled
        module.launch(
            "axpy", (8, 1, 1), (256, 1, 1), [x, y, n],    # kernel, grid, block, addresses and integers
            shared_bytes=0, order=order, memory=[Memory(x, x + 4 * n), Memory(y, y + 4 * n)],
        )
    module.close()

Device module: text of LLVM IR with opaque pointers for nvptx64-nvidia-cuda. Kernels have the calling convention
`ptx_kernel`; their parameters are pointers, integers and floats. Shared memory is in globals of address space 3, of
which one may be external: the dynamic array. `intrinsics.py` has the table of the intrinsics that the emulator knows.

A launch runs the blocks one after the other, and returns when all threads have ended. A kernel that reaches no barrier
and no operation of warps runs its threads in a loop. The threads of any other are fibers, each with a stack of 576 KiB.
Shared memory is filled with a pattern before each block. Bits are those of IEEE 754: nothing is contracted that the IR
doesn't say, as PTX states every rounding; only the payloads of NaNs may differ from a GPU's.

What a kernel does wrong is a `faults.KernelFaultError`, which names the kernel, the block and the thread:

    always            DivergentBarrierError, MissingLanesError, TrapError
    checked=True      OutOfBoundsError, MisalignedAccessError: for loads, stores, atomics and copies
    races=True        SharedRaceError: two threads at one word of shared memory, with no barrier in between

Without `checked`, an access out of bounds is one of this process.
"""
