"""Kernels of these tests run on the emulated driver, or on a GPU."""

from tests.gpu_driver import gpu_driver

__all__ = ["gpu_driver"]
