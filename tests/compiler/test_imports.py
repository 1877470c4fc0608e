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

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
INDENTED = re.compile(r"^ +(import|from) ", re.MULTILINE)  # most files have none, and parsing all takes long
LATE = {
    "compiler/lower/constant_tables.py": ["fractions"],  # 5 ms of every start, for few programs
    "compiler/worker.py": ["distxla.compiler"],  # limits its memory, and sets its messages apart, before it loads LLVM
}
# what a driver loads whose programs are all in the cache
DRIVER = "import distxla.cli.programs, distxla.cli.run, distxla.cli.summary, distxla.runtime.cluster"
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
