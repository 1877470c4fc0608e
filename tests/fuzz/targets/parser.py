"""HLO text to module: a module, which comes back from its printed text, or an error with its place."""

from __future__ import annotations

from distxla.errors import ArgumentError, HloSyntaxError, VerificationError
from distxla.text.parser import parse_module
from distxla.text.printer import print_module
from tests.fuzz.errors import assert_refusal
from tests.fuzz.hlo_inputs import mutate, seeds
from tests.fuzz.targets import Target


def check(data: bytes) -> None:
    try:
        module = parse_module(data, "<fuzzed>")
    except (HloSyntaxError, VerificationError) as error:
        assert_refusal(error, located=True)
        return
    except ArgumentError as error:  # no text
        assert_refusal(error)
        return
    printed = print_module(module)
    assert parse_module(printed) == module, f"does not come back from:\n{printed}"


TARGET = Target(check, seeds, mutate, weight=3, largest=4096)
