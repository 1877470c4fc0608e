"""Rules about the tree itself. Each message says what to do."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from distxla.ir.op import Lowering, Op
from distxla.ops.support.executable import CollectiveOp, ExecutableOp
from distxla.ops.support.registry import op_classes

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path
    for folder in ("distxla", "scheduler", "collectives", "bench", "docs", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if not any(part.is_symlink() for part in path.parents)
)
EXECUTABLE = {name: op for name, op in op_classes().items() if op.lowering is not Lowering.NONE}
MOST_LINES = 500
PRIVATE = re.compile(r"_(?!fields$)[A-Za-z]\w*$")  # a named tuple's _fields is public
NOT_OURS = {"self", "cls", "super()", "os", "dis", "jax", "jaxlib.xla_client", "xla_client", "libc"}
# each with the reason why it stays
PRIVATE_NAMES_IN_TESTS: dict[str, set[str]] = {
    # the whole state, which an interrupt at any instruction leaves as it was
    "machine/test_heap_interrupts.py": {"_bounds", "_checked", "_headroom", "_hosted", "_segments"},
    "runtime/test_program_interrupts.py": {
        *("_bounds", "_configured", "_free_numbers", "_heap", "_high", "_lock", "_numbers", "_pairs"),
    },
    # a state that no call brings about: of a forked process, a busy one, one that ends, one far on
    "compiler/test_compile.py": {"_lock"},
    "runtime/arrays/test_call_queue.py": {"_block", "_owner", "_thread", "_work"},
    "runtime/arrays/test_device_array.py": {"_block"},
    "runtime/calls/test_trace.py": {"_rings"},
    "runtime/calls/test_unloading.py": {"_next"},
    "runtime/test_cluster.py": {"_send"},
    "wire/test_handshake.py": {"_thread"},
    # parts that are made without the rest of a run
    "runtime/test_agent.py": {"_control", "_handle"},
    "runtime/test_deadlock_looks.py": {"_here"},
    "runtime/test_kept_together.py": {"_others"},
    "simulation/actors.py": {"_control", "_device"},
    "simulation/edges.py": {"_Mapping", "_longs", "_words"},
    # the tests' own
    "collectives/protocols/models/machine.py": {"_add"},
    "simulation/runs.py": {"_open", "_timers"},
    "simulation/sockets.py": {"_backlog", "_waiters"},
    "test_failed_tests.py": {"_run_again"},
    "test_processor_times.py": {"_watch_clusters"},
    "test_stopwatch.py": {"_now", "_stalled_s"},
}
LISTS = {"test_architecture.py", "compiler/test_imports.py", "simulation/edges.py", "simulation/planted.py"}  # of names
PRODUCT = ("distxla", "scheduler", "collectives")
FEW_LINES = 100  # of a module that no test need name
EMPTY_NAMES = {"utils", "util", "helpers", "common", "misc", "base", "core", "types"}


def test_imports_go_downwards() -> None:
    """The contracts stand in pyproject.toml, [tool.importlinter]."""
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[run.stdout.find("Broken contracts") :] + run.stderr


def test_no_test_imports_another() -> None:
    """What several tests share stands in a file of its own, such as dot_cases.py beside test_dot.py."""
    found = []
    for path in (path for path in SOURCES if path.relative_to(ROOT).parts[0] == "tests"):
        for match in re.finditer(r"^from (tests\.[\w.]+) import (.*)", path.read_text(), re.MULTILINE):
            if any(part.startswith("test_") for part in (*match[1].split("."), *re.findall(r"\w+", match[2]))):
                found.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert not found


def test_every_module_is_named_by_a_test() -> None:
    """By the test file's own name, an import, or <name>.py in a docstring, such as that of tests/ops/__init__.py."""
    modules, endings = set(), defaultdict(set)
    for path in (path for path in SOURCES if path.relative_to(ROOT).parts[0] in PRODUCT):
        parts = path.relative_to(ROOT).parts
        module = "/".join(parts if parts[0] == "distxla" else ("distxla", *parts))
        if path.name != "__init__.py" and len(path.read_text().splitlines()) > FEW_LINES:
            modules.add(module)
        for start in range(len(module.split("/"))):
            endings["/".join(module.split("/")[start:])].add(module)
    named: set[str] = set()
    tests = (path for path in SOURCES if path.relative_to(ROOT).parts[0] == "tests")
    for path in (path for path in tests if str(path.relative_to(ROOT / "tests")) not in LISTS):
        for name in names_of_modules(path):
            found = endings.get(name, set())
            named |= found if len(found) == 1 else found & {f"{mirrored_folder(path)}/{name}"}
    unnamed = sorted(modules - named)
    assert not unnamed, "find the tests that run them, and write it into the docstring of tests/<folder>/__init__.py"


def names_of_modules(path: Path) -> set[str]:
    """What a file of the tests names by its own name, in its text, or by its imports."""
    text = path.read_text()
    found = set(re.findall(r"[\w/]+\.py\b", text)) | {path.name.removeprefix("test_")}
    for module, names in re.findall(r"\b(distxla[\w.]*)(?: import (\([^)]*\)|.*))?", text):
        dotted = [module, module.rpartition(".")[0], *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
        found |= {f"{each.replace('.', '/')}.py" for each in dotted}
    return found


def mirrored_folder(path: Path) -> str:
    return "/".join(("distxla", *path.relative_to(ROOT).parts[1:-1]))


def test_what_the_tests_folders_name_exists() -> None:
    """In tests/<folder>/__init__.py: code of distxla/<folder>/, and test files."""
    found = []
    for path in (ROOT / "tests").rglob("__init__.py"):
        for name in re.findall(r"[\w/]+\.py\b", ast.get_docstring(ast.parse(path.read_text())) or ""):
            if not any((folder / name).exists() for folder in (ROOT / mirrored_folder(path), path.parent, ROOT)):
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert not found


def test_no_test_touches_a_private_name() -> None:
    """What a test needs is public, or comes about by what is."""
    found: dict[str, set[str]] = {}
    for path in (path for path in SOURCES if path.relative_to(ROOT).parts[0] == "tests"):
        if names := set(private_names(path.read_text())):
            found[str(path.relative_to(ROOT / "tests"))] = names
    assert found == PRIVATE_NAMES_IN_TESTS, "make them public, or change the test; the table only shrinks"


def private_names(text: str) -> Iterator[str]:
    """Those that a test imports from distxla, replaces, or takes from what is neither itself nor a library's."""
    if re.search(r"\b_[A-Za-z]", text) is None:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("distxla"):
            yield from (alias.name for alias in node.names if PRIVATE.match(alias.name))
        elif isinstance(node, ast.Attribute) and PRIVATE.match(node.attr):
            if ast.unparse(node.value) not in NOT_OURS:
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            for argument in node.args[:2]:  # an object and a name, or a path
                path = str(argument.value) if isinstance(argument, ast.Constant) else ""
                name = path.rpartition(".")[2] if path.startswith("distxla.") else path
                if PRIVATE.match(name) and ast.unparse(node.args[0]) not in NOT_OURS:
                    yield name


def test_time_comes_from_one_clock() -> None:
    """distxla/clock.py, so that a simulation can hand in its own."""
    others = {
        "distxla/clock.py",
        "distxla/runtime/ray/client.py",  # gives Ray's client a clock
        "distxla/runtime/ray/plain_server.py",  # a process of its own that imports nothing of distxla
        "distxla/runtime/ray/supervisor.py",  # likewise
    }
    product = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in PRODUCT]
    found = [path for path in product if re.search(r"^\s*(import time|from time)\b", path.read_text(), re.MULTILINE)]
    assert {str(path.relative_to(ROOT)) for path in found} == others


def test_the_page_shows_the_folders_in_their_order() -> None:
    """docs/architecture.md, "The house", has each folder of the ladder once, the upper ones first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ladder = next(each["folders"] for each in contracts if each["type"] == "folder_ladder")
    folders = [name.replace(".", "/") + "/" for name in ladder if (ROOT / "distxla" / name.replace(".", "/")).is_dir()]
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## The house")[2].partition("\n## ")[0]
    shown: list[str] = []
    for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE):
        for name in re.findall(r"`([\w/]+/)`", row):
            below = [each for each in folders if each.startswith(name) and each not in shown]
            shown += below if "and its folders" in row else [name]
    assert sorted(shown) == sorted(folders)
    found = [shown.index(name) for name in folders]
    late = [name for name, place, after in zip(folders, found, found[1:], strict=False) if place > after]
    assert not late, "these stand above others in pyproject.toml"


@pytest.mark.parametrize("opcode", EXECUTABLE)
def test_executable_op_is_complete(opcode: str) -> None:
    """An op that the compiler knows has NumPy's answer, the emission that its lowering asks for, and test cases."""
    op = EXECUTABLE[opcode]
    assert op.role.is_parameter or op.evaluate is not ExecutableOp.evaluate, f"{opcode} has no evaluate"
    if op.lowering is Lowering.ELEMENT:
        assert op.emit_element is not ExecutableOp.emit_element, f"{opcode} has no emit_element"
    if op.lowering is Lowering.KERNEL:
        assert op.emit_kernel is not ExecutableOp.emit_kernel, f"{opcode} has no emit_kernel"
    # a parameter is bound by its caller, after-all has no data
    if op.lowering is Lowering.ALIAS and op.operand_count.least:
        assert op.result_leaves is not Op.result_leaves, f"{opcode} has no result_leaves"
    if issubclass(op, CollectiveOp):
        assert op.evaluate_group is not CollectiveOp.evaluate_group, f"{opcode} has no evaluate_group"
    assert cases_of(opcode), f"no case of {opcode} under tests/ops, tests/collectives or tests/compiler"


def test_each_file_of_ops_registers_an_opcode() -> None:
    defining = {op.__module__.rpartition(".")[2] for op in op_classes().values()}
    others = {path.stem for path in (ROOT / "distxla" / "ops").glob("*.py")} - defining
    assert others == {"__init__"}, "what ops share stands in ops/support"


def test_lowerings_promise_methods_that_ops_have() -> None:
    promised = re.findall(r"`((?:emit|expand)\w*)`", Lowering.__doc__ or "")
    assert {"emit_element", "emit_kernel", "expand"} <= set(promised)
    assert not [name for name in promised if not hasattr(ExecutableOp, name)]


@pytest.mark.parametrize("opcode", op_classes())
def test_op_is_documented(opcode: str) -> None:
    documentation = op_classes()[opcode].__doc__ or ""
    assert len(documentation.split()) >= 4, f"{opcode}: its class's docstring is its page in `distxla ops {opcode}`"
    assert not documentation.startswith(op_classes()[opcode].__name__ + "("), (
        f"{opcode} has only the generated docstring"
    )


def cases_of(opcode: str) -> list[str]:
    """Where the opcode is tested: tables of cases, test files that name it as a string or write it in HLO text."""
    return [name for name, words in case_words().items() if opcode in words]


@cache
def case_words() -> dict[str, set[str]]:
    texts = {}
    for folder in ("ops", "collectives", "compiler", "oracle"):
        for path in (ROOT / "tests" / folder).rglob("*.py"):
            texts[path.stem] = path.read_text()
            if path.stem.startswith("cases_"):
                module = importlib.import_module(f"tests.{folder}.{path.stem}")
                tables = [table for table in vars(module).values() if isinstance(table, list)]
                texts[path.stem] += " ".join(f"'{getattr(case, 'opcode', '')}'" for table in tables for case in table)
    pattern = re.compile(r"""["']([\w-]+)["']|[ =]([\w-]+)\(""")
    return {name: {word for found in pattern.findall(text) for word in found} for name, text in texts.items()}


def test_every_file_has_a_size_and_a_name() -> None:
    assert [fault for path in SOURCES for fault in faults_of(path)] == []


def faults_of(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    found = []
    if len(lines) > MOST_LINES:
        found.append(f"{len(lines)} lines: split it")
    if path.stem in EMPTY_NAMES:
        found.append("a module is a noun that says what is in it")
    if path.name != "__init__.py" and "programs" not in path.parts:
        if not lines:
            found.append("the file is empty")
        elif not lines[0].startswith(('"""', 'r"""', "#!")):
            found.append("a module begins with its docstring")
    return [f"{path.relative_to(ROOT)}: {fault}" for fault in found]


def test_second_copies_of_the_top_level_folders_cannot_be_imported() -> None:
    """From the root `import scheduler` would make other classes than `distxla.scheduler`'s."""
    for name in ("scheduler", "collectives"):
        run = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode != 0
        assert f"import distxla.{name}, not {name}" in run.stderr
