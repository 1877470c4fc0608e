"""What test_rng.py shares with other tests."""

from __future__ import annotations

from distxla.ir.element_type import ElementType
from tests.gpu_driver import gpu_driver  # noqa: F401 - a fixture


def program(element: ElementType | str, distribution: str, dims: str = "1000,3") -> str:
    return f"""HloModule random
ENTRY main {{
  a = {element}[] parameter(0)
  b = {element}[] parameter(1)
  ROOT r = {element}[{dims}] rng(a, b), distribution=rng_{distribution}
}}
"""
