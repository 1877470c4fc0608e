"""What only a GPU shows: `make gpu-check`, or `python -m tests.gpu_check` where there is no make or no Ray.

Three minutes on a machine with an H100. It reads what the driver costs, runs the tests of the driver, of kernels and,
where Ray is installed, of clusters on the GPU instead of the emulator, programs under compute-sanitizer where that is
installed, and times kernels beside JAX where that finds the GPU.
"""
