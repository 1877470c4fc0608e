"""The runtime reaches the machine by names that a simulation can give other objects."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from tests.simulation.edges import MACHINE, modules

NAMES = {module.__name__ for module in MACHINE} | {"multiprocessing", "asyncio", "sched", "subprocess"}


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_a_module_imports_the_machine_as_modules(module: ModuleType) -> None:
    """`import socket` at its top, then `socket.socket()`: a name that is bound otherwise stays this machine's in a
    simulated run. Processes of other kinds, which simulated runs do without, are started elsewhere: edges.BEYOND."""
    tree = ast.parse(inspect.getsource(module))
    inside = {
        id(node) for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module not in NAMES, f"line {node.lineno}: import {node.module}, and use its names"
        elif isinstance(node, ast.Import) and id(node) in inside:
            found = [alias.name for alias in node.names if alias.name in NAMES]
            assert not found, f"line {node.lineno}: import {found[0]} at the module's top"
