"""What files import, the compiler's where, and what a run of a cached program is spared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import distxla
from distxla.ops.custom_calls.target import GPU_LIBRARIES, built_in_targets

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
INDENTED = re.compile(r"^ +(import|from) ", re.MULTILINE)  # most files have none, and parsing all takes long
LATE = {
    "compiler/lower/constant_tables.py": ["fractions"],  # 5 ms of every start, for few programs
    "compiler/requests.py": ["distxla.compiler.stages"]
    * 2,  # `distxla compile` alone prints stages, also those of GPUs
    "compiler/worker.py": ["distxla.compiler"],  # limits its memory, and sets its messages apart, before it loads LLVM
}
# what a driver loads whose programs are all in the cache
DRIVER = "import distxla.cli.programs, distxla.cli.run, distxla.cli.summary, distxla.runtime.cluster"
# what the commands, the process that compiles and a device's process load for a program of this machine's processor
OF_PROCESSORS = f"""{DRIVER}, distxla.cli.check, distxla.runtime.replica.replica
from distxla.compiler import requests
from distxla.ir.counts import Counts
from distxla.text.parser import parse_module

requests.warm_up()
module = parse_module('''HloModule annotated
ENTRY main {{
  a = f32[4] parameter(0)
  ROOT b = f32[4] custom-call(a), custom_call_target="Sharding", sharding={{replicated}}
}}''')
requests.compile_module(module, Counts(1, 1))
"""
OF_GPUS = ("distxla.targets.nvptx.", "distxla.ops.custom_calls.gpu")
COMPILING = ("distxla.compiler.pipeline", "distxla.compiler.compile", "distxla.compiler.plan", "distxla.compiler.lower")


def test_no_file_imports_in_a_circle_not_even_for_types() -> None:
    graph = grimp.build_graph("distxla", cache_dir=None, exclude_type_checking_imports=False)
    assert len(graph.modules) > 500
    TopologicalSorter({m: graph.find_modules_directly_imported_by(m) & graph.modules for m in graph.modules}).prepare()


def test_imports_stand_at_the_top() -> None:
    package = Path(distxla.__file__).parent
    found: dict[str, list[str]] = {}
    for path in sorted((package / "compiler").rglob("*.py")):
        text = path.read_text()
        if INDENTED.search(text) is None:
            continue
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTIONS)]
        for node in {inner for function in functions for inner in ast.walk(function)}:
            if isinstance(node, ast.ImportFrom | ast.Import):
                name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
                found.setdefault(str(path.relative_to(package)), []).append(name)
    assert found == LATE


def test_a_driver_loads_neither_llvm_nor_what_compiles() -> None:
    code = f"{DRIVER}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "distxla.compiler.cache" in loaded.split()
    assert [name for name in loaded.split() if name.startswith(("llvmlite", *COMPILING))] == []


def test_a_program_of_processors_loads_nothing_of_gpus() -> None:
    code = f"{OF_PROCESSORS}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert {"distxla.ops.custom_calls.annotation", "distxla.runtime.replica.serve"} <= set(loaded.split())
    assert [name for name in loaded.split() if name.startswith(OF_GPUS)] == []


def test_names_of_gpu_libraries_begin_as_only_they_do() -> None:
    """By that alone `built_in_target` decides whether it loads the folder gpu/."""
    for name, target in built_in_targets().items():
        assert name.startswith(GPU_LIBRARIES) == type(target).__module__.startswith(OF_GPUS), name
