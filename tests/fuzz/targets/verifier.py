"""Modules as text through the verifier: accepted, or refused with the place in the text."""

from __future__ import annotations

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import DistxlaError
from distxla.text.parser import parse_module
from tests.executable import require_executable
from tests.fuzz.errors import assert_refusal
from tests.fuzz.hlo_inputs import mutate, seeds
from tests.fuzz.targets import Target


def check(data: bytes) -> None:
    try:
        module = parse_module(data, "<fuzzed>")
    except DistxlaError:
        return  # the parser is a target of its own
    try:
        verify_module(module)
        require_executable(module)
    except DistxlaError as error:
        assert_refusal(error, located=True)


TARGET = Target(check, seeds, mutate, weight=4, largest=4096)
