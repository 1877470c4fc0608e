"""NVIDIA's library of matrix products, cuBLAS, where it is installed: programs call it in place of their own kernels.

`gemm.py` says which products it takes, and with which arguments; the host's code calls it (host_calls.py). `choice.py`
finds the library, `binding.py` calls the rest of it. `emulated.py` takes its place beside the emulated driver.
"""
