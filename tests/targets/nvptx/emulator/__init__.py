"""The emulator that runs kernels on the processor.

access.py, layout.py: test_faults.py
device_text.py, runtime.py, text.py: test_kernels.py, test_intrinsics.py
"""
