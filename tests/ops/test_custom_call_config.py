"""The backend_config of a custom-call as its target sees it."""

from __future__ import annotations

from typing import Any

import pytest

from distxla.ops.custom_calls.ffi.config import ConfigError, read_config


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (None, {}),
        ("opaque bytes", {}),
        ("{}", {}),
        ('{"a": [1, 2.5], "b": {"c": null}}', {"a": [1, 2.5], "b": {"c": None}}),
        ("{uplo = 76 : ui8, lower = true}", {"uplo": 76, "lower": True}),
        ("{a = -1, b = 2.5 : f32, c = 1 : f64, d = 1 : i1}", {"a": -1, "b": 2.5, "c": 1.0, "d": True}),
        ('{name = "x}, \\"y\\"", unit, "quoted key" = 3}', {"name": 'x}, "y"', "unit": True, "quoted key": 3}),
        ("{a = array<i64: 1, -2>, b = [true, [3 : i32]], c = array<i1: true>}",
         {"a": [1, -2], "b": [True, [3]], "c": [True]}),
        ("{d = dense<[1, 2]> : tensor<2xi32>, e = {f = #m.kind<x>}}", {"d": "dense<[1,2]>", "e": {"f": "#m.kind<x>"}}),
    ],
)  # fmt: skip
def test_entries(text: str | None, entries: dict[str, Any]) -> None:
    config = read_config(text)
    assert config.entries == entries
    assert config.text == (text or "")


@pytest.mark.parametrize("text", ["{a = }", "{a", "{= 1}", "{a = 1} b", "{a = array<i64", "{a = [1", "{a = dense<"])
def test_what_is_no_dictionary(text: str) -> None:
    with pytest.raises(ConfigError):
        read_config(text)


def test_entries_by_type() -> None:
    config = read_config('{i = 3, f = 2.5, t = 1, u = 76 : ui8, s = "R", l = [1]}')
    assert config.get("i", int) == 3
    assert config.get("i", float) == 3.0
    assert config.get("t", bool) is True
    assert config.get("missing", int, 7) == 7
    assert config.letter("u") == "L"
    assert config.letter("s") == "R"
    assert config.letter("missing", "N") == "N"
    assert config.get("l", list) == [1]
    for key, kind in [("missing", int), ("f", int), ("i", bool), ("s", int)]:
        with pytest.raises(ConfigError, match=key):
            config.get(key, kind)
    with pytest.raises(ConfigError, match="no character 'f'"):
        config.letter("f")
