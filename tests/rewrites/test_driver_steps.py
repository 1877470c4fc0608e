"""The head of the pipeline, which the driver runs: the whole gives the same, and no other stage runs beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distxla
from distxla.compiler.cache_key import program_key
from distxla.compiler.compile import compile_module
from distxla.compiler.pipeline import STEPS, Pipeline, parse_pipeline
from distxla.compiler.verify.verifier import verify_module
from distxla.errors import ArgumentError, UnsupportedOpError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.program.host_call_site import FunctionKey
from distxla.rewrites.driver_steps import after_driver_steps, driver_steps
from distxla.rewrites.host_calls import HostCallsAsTransfers
from distxla.rewrites.reduction_order import ReductionOrder
from distxla.text.parser import parse_module
from distxla.text.printer import print_module

CALLED = 'custom-call(r), custom_call_target="xla_ffi_python_cpu_callback", backend_config={index = 3 : ui64}'
SUM = "all-reduce(x), replica_groups={{0,1}}, to_apply=add"
PROGRAM = f"""HloModule m, replica_count=2
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[8] parameter(0)
  r = f32[8] {SUM}
  ROOT y = f32[8] ROOT }}
"""
CALLS, PLAIN = PROGRAM.replace("ROOT }", f"{CALLED} }}"), PROGRAM.replace("ROOT }", "negate(r) }")
COUNTS = Counts(2, 1)
CASES: list[tuple[str, list[FunctionKey], str | None]] = [
    (PLAIN, [], None),
    (PLAIN, [], "ring"),
    (CALLS, [3], None),
    (CALLS, [3, "other"], "tree"),
]


def test_the_list_of_steps_begins_with_those_of_the_driver() -> None:
    assert driver_steps() == (HostCallsAsTransfers(), ReductionOrder()) == STEPS[: len(driver_steps())]
    head = Pipeline().through("reduction-order")
    assert head.steps == driver_steps()
    assert ",".join(map(str, driver_steps("ring"))) == "host-calls,reduction-order{order=ring}"


@pytest.mark.parametrize(("text", "keys", "order"), CASES)
def test_the_pipeline_behind_the_driver_gives_what_the_whole_one_gives(
    text: str, keys: list[FunctionKey], order: str | None
) -> None:
    module = parse_module(text)
    steps = (*driver_steps(order or "as-written"), *STEPS[len(driver_steps()) :])
    whole = Pipeline(steps, verify=True).before("plan").run(module, COUNTS, host_calls=keys)
    given = after_driver_steps(module, keys, order)
    behind = Pipeline(verify=True).before("plan").run(given.module, COUNTS)
    assert print_module(behind.module) == print_module(whole.module)
    assert behind.result == whole.result
    assert given.host_call_sites == whole.host_call_sites
    assert len(given.host_call_sites) == (text is CALLS)


@pytest.mark.parametrize("order", [None, "as-written", "rank"])
def test_where_nothing_is_asked_for_the_module_stays(order: str | None) -> None:
    module = parse_module(PLAIN)
    assert after_driver_steps(module, [], order).module is module


def test_a_module_without_its_entry_is_left_to_the_verifier() -> None:
    changed = after_driver_steps(parse_module(CALLS).replace(entry="z"), [3], "ring").module
    with pytest.raises(VerificationError, match=r"module\.entry: there is no computation z"):
        verify_module(changed)


def test_a_module_without_its_root_is_left_to_the_verifier() -> None:
    module = parse_module(CALLS)
    entry = module.entry_computation
    module = module.replace(computations=(*module.computations[:-1], Computation(entry.name, entry.instructions, "z")))
    changed = after_driver_steps(module, [3], "ring").module
    with pytest.raises(VerificationError, match=r"computation\.root: e has no z"):
        verify_module(changed)


@pytest.mark.parametrize("name", ["host-calls", "reduction-order"])
def test_the_compilers_process_changes_nothing_in_these_steps(name: str) -> None:
    given = after_driver_steps(parse_module(CALLS), [3], "ring").module
    assert Pipeline().through(name).run(given, COUNTS).module is given


def test_the_cache_goes_by_the_module_that_these_steps_give() -> None:
    ordered = PLAIN.replace(SUM, f"{SUM}, reduction_order=ring")
    keys = {
        program_key(after_driver_steps(parse_module(text), given, order).module, COUNTS)
        for text, given, order in [(ordered, [], None), (PLAIN, [3], "ring"), (ordered, ["a"], "ring")]
    }
    assert len(keys) == 1
    assert keys != {program_key(parse_module(PLAIN), COUNTS)}


def test_an_order_that_there_is_not() -> None:
    with pytest.raises(ArgumentError, match="reduction order 'random': expected rank, tree, ring"):
        after_driver_steps(parse_module(PLAIN), [], "random")


def test_a_callback_is_refused_where_nobody_can_call_it() -> None:
    """As before these steps were in the list: by the compiler, which has no functions to name."""
    with pytest.raises(UnsupportedOpError, match="which this command doesn't have"):
        compile_module(parse_module(CALLS), COUNTS)


def test_a_text_may_name_the_order() -> None:
    steps = parse_pipeline("host-calls,reduction-order{order=ring}")
    assert "to_apply=%add, reduction_order=ring" in print_module(steps.run(parse_module(PLAIN)).module)


def test_the_runtime_runs_no_other_rewrite() -> None:
    """But for the form in which the reference, `check` and the compiler execute a module, which diagnoses read."""
    found = set()
    for path in (Path(distxla.__file__).parent / "runtime").rglob("*.py"):
        found |= set(re.findall(r"distxla\.rewrites\.\w+", path.read_text()))
    assert found == {"distxla.rewrites.driver_steps", "distxla.rewrites.executed_form"}
