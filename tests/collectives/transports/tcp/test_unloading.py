"""A program is unloaded after the other hosts have confirmed its last messages."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.transports.control_block import ControlBlock
from distxla.collectives.transports.shared_words import SharedWords
from distxla.collectives.transports.tcp import point_to_point as pairs
from distxla.runtime.serve import support_program

PLACE = 1 << 20


@pytest.mark.parametrize(("word", "value"), [("taken", 1), ("abort", 1)])
def test_a_permute_waits_for_the_word_that_its_message_was_taken(
    word: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "SETTLE_S", 60.0)
    block = ControlBlock.create(2)
    proxy: Any = SimpleNamespace(host=0, block=block, shared=SharedWords(support_program()))
    known = pairs.Pairs(proxy, {0: 0, 1: 1})
    known.add(PLACE, (0, 1), ((0, 1),))
    message = next(iter(known.messages))
    block.words[(message + permute_words.M_POSTED) // 4] = 1
    leaving = threading.Thread(target=known.remove, args=(PLACE,))
    leaving.start()
    time.sleep(0.05)
    assert leaving.is_alive()
    assert message in known.messages
    where = {"taken": message + permute_words.M_TAKEN, "abort": control.H_ABORT}[word]
    block.words[where // 4] = value
    leaving.join(20)
    assert not known.messages
    block.close()
