"""Words of communicators that the driver configures: a Ctrl-C at any of them is made good by the next call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.runtime.groups.communicators import Communicators
from distxla.runtime.values.host import Host

VALUES = (7, 8, 9)
FIRST = 16  # word


class Words(list[int]):
    """Memory in which the n-th write is interrupted, before or after it takes effect."""

    def __init__(self, *, at: int, after: bool) -> None:
        super().__init__([0] * 64)
        self.at, self.after, self.writes = at, after, 0

    def __setitem__(self, word: Any, value: Any) -> None:
        self.writes += 1
        if self.writes == self.at and not self.after:
            raise KeyboardInterrupt
        super().__setitem__(word, value)
        if self.writes == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 2 * len(VALUES) + 1))
def test_interrupted_words_are_written_when_they_are_configured_again(at: int, after: bool) -> None:
    hosts = [Words(at=at, after=after), Words(at=at - len(VALUES), after=after)]

    def write(offset: int, data: bytes) -> None:
        hosts[1][offset // 4] = int.from_bytes(data, "little")

    remote = cast("Host", SimpleNamespace(index=1, control_write=write))
    local = SimpleNamespace(configure=lambda place, value: hosts[0].__setitem__(place // 4, value))
    communicators = Communicators(cast("ControlBlock", local), remotes=[remote])
    with pytest.raises(KeyboardInterrupt):
        communicators.configure(4 * FIRST, *VALUES)
    communicators.configure(4 * FIRST, *VALUES)
    for words in hosts:
        assert tuple(words[FIRST : FIRST + len(VALUES)]) == VALUES
    written = [words.writes for words in hosts]
    communicators.configure(4 * FIRST, *VALUES)
    assert [words.writes for words in hosts] == written, "known words are not written again"
