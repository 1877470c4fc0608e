"""Texts of modules changed by chance: numbers, sizes, types, opcodes, operands, attributes, layouts, windows."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TYPES = re.findall(
    r"\S+",
    "pred s2 s4 s8 s16 s32 s64 u2 u4 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn",
)
OPCODES = re.findall(
    r"\S+",
    "add power remainder select compare clamp convert reshape transpose broadcast slice reverse concatenate pad reduce "
    "sort gather scatter dot convolution dynamic-slice dynamic-update-slice reduce-window select-and-scatter iota copy "
    "bitcast bitcast-convert complex real cholesky fft triangular-solve while conditional call map tuple "
    "get-tuple-element batch-norm-training get-dimension-size set-dimension-size all-reduce all-gather all-to-all topk",
)
NUMBERS = [0, 0, 1, -1, 2, 3, 7, 100, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63)]
SIZES = [0, 0, 1, 2, 3, 5, 17, 33]

Mutation = Callable[[str, random.Random], str]


def mutated(text: str, choose: random.Random) -> str:
    """The text after one to three changes."""
    for _ in range(choose.choice([1, 1, 1, 2, 3])):
        text = choose.choice(MUTATIONS)(text, choose)
    return text


def _replaced(text: str, choose: random.Random, pattern: str, new: Callable[[re.Match[str]], str]) -> str:
    """One of the places that match gets another text."""
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = choose.choice(places)
    return text[: place.start()] + new(place) + text[place.end() :]


def _number(text: str, choose: random.Random) -> str:
    def new(place: re.Match[str]) -> str:
        value = int(place.group())
        return str(choose.choice([*NUMBERS, value + 1, value - 1, 2 * value]))

    return _replaced(text, choose, r"(?<![\w.])-?\d+(?![\w.])", new)


def _size_everywhere(text: str, choose: random.Random) -> str:
    shapes = re.findall(r"\[(\d+(?:,\d+)*)\]", text)
    if not shapes:
        return text
    old = choose.choice(shapes)
    sizes = old.split(",")
    sizes[choose.randrange(len(sizes))] = str(choose.choice(SIZES))
    return text.replace(f"[{old}]", f"[{','.join(sizes)}]")


def _dynamic(text: str, choose: random.Random) -> str:
    shapes = re.findall(r"\[(\d+(?:,\d+)*)\]", text)
    if not shapes:
        return text
    old = choose.choice(shapes)
    sizes = old.split(",")
    at = choose.randrange(len(sizes))
    sizes[at] = f"<={sizes[at]}"
    return text.replace(f"[{old}]", f"[{','.join(sizes)}]")


def _type(text: str, choose: random.Random) -> str:
    found = re.findall(rf"\b({'|'.join(TYPES)})\[", text)
    if not found:
        return text
    old, new = choose.choice(found), choose.choice(TYPES)
    return re.sub(rf"\b{old}\[", f"{new}[", text, count=choose.choice([0, 0, 1]))


def _opcode(text: str, choose: random.Random) -> str:
    return _replaced(text, choose, r"(?<=[\]})] )[a-z][a-z0-9-]+(?=\()", lambda _: choose.choice(OPCODES))


def _operands(text: str, choose: random.Random) -> str:
    return _replaced(text, choose, r"\(([\w.%-]+), ([\w.%-]+)", lambda place: f"({place[2]}, {place[1]}")


def _list(text: str, choose: random.Random) -> str:
    def new(place: re.Match[str]) -> str:
        numbers = [n for n in place[1].split(",") if n]
        change = choose.randrange(4)
        if change == 0 and numbers:
            numbers[choose.randrange(len(numbers))] = str(choose.choice([0, 1, 2, 3, -1, 9]))
        elif change == 1 and numbers:
            del numbers[choose.randrange(len(numbers))]
        elif change == 2:
            numbers.insert(choose.randint(0, len(numbers)), str(choose.choice([0, 1, 2, 3])))
        else:
            choose.shuffle(numbers)
        return "{" + ",".join(numbers) + "}"

    return _replaced(text, choose, r"\{([\d,]+)\}", new)


def _window(text: str, choose: random.Random) -> str:
    def new(place: re.Match[str]) -> str:
        rank = place[1].count("x") + 1
        field = choose.choice(["size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal"])
        values = {"pad": ["0_0", "1_1", "-1_2", "5_-3", "0_50"], "rhs_reversal": ["0", "1"]}.get(
            field, ["0", "1", "1", "2", "3", "7", "100", str(1 << 31), "-1"]
        )
        rest = [part for part in place.group()[len("window={") : -1].split(" ") if not part.startswith(field + "=")]
        return "window={" + " ".join([*rest, f"{field}={'x'.join(choose.choices(values, k=rank))}"]) + "}"

    return _replaced(text, choose, r"window=\{size=([\dx]+)[^}]*\}", new)


def _padding(text: str, choose: random.Random) -> str:
    edges = ["0", "1", "-1", "3", "-9"]
    text = _replaced(text, choose, r"(?<=[=x])-?\d+_-?\d+", lambda _: "_".join(choose.choices(edges, k=2)))
    return _replaced(text, choose, r"\[\d+:\d+\]", lambda _: f"[{choose.choice(SIZES)}:{choose.choice(SIZES)}]")


def _attribute(text: str, choose: random.Random) -> str:
    return _replaced(text, choose, r", \w+=(?:\{[^{}]*\}|[\w.%-]+)", lambda at: choose.choice(["", at.group() * 2]))


def _flag(text: str, choose: random.Random) -> str:
    return _replaced(text, choose, r"\b(?:true|false)\b", lambda at: "false" if at.group() == "true" else "true")


MUTATIONS: list[Mutation] = [
    *(_number, _number, _size_everywhere, _size_everywhere, _size_everywhere, _type, _opcode, _operands),
    *(_list, _list, _window, _padding, _attribute, _flag, _dynamic),
]
