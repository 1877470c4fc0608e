"""The driver of NVIDIA's GPUs: memory, copies, launches as a queue, synchronisation.

    gpus = open_driver()                        # by DISTXLA_GPU_DRIVER; DriverError says why there is none
    with gpus.context(0) as context:            # of the first GPU
        address = context.allocate(1 << 20)     # in its memory: no code of this processor can access it
        stream = context.create_stream()
        context.copy_to_device(address, host_address, 4096, stream)
        function = context.load(code).function("axpy")
        context.launch(function, (8, 1, 1), (256, 1, 1), [address], stream)
        context.synchronise(stream)             # until here nothing needs to have happened

`interface.py` has the functions of the driver's C interface, with their types. Two libraries have them: NVIDIA's
libcuda.so.1, and `emulated/`, which runs kernels in the emulator. `driver.py` calls either one, through the C
interface, so what is tested with one holds for how the other is called. Compiled programs call the same functions
(`Context.address_of`).
"""
