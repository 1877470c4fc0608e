"""A program is unloaded after the other hosts have confirmed its last messages."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols import permute as permute_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.tcp import point_to_point as pairs

PLACE = 1 << 20


@pytest.mark.parametrize(("word", "value"), [("taken", 1), ("abort", 1)])
def test_a_permute_waits_for_the_word_that_its_message_was_taken(
    word: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "SETTLE_S", 60.0)
    block = ControlBlock.create(2)
    proxy: Any = SimpleNamespace(host=0, block=block)
    known = pairs.Pairs(proxy, {0: 0, 1: 1})
    known.add(PLACE, (0, 1), ((0, 1),))
    message = next(iter(known.messages))
    block.store(permute_words.M_POSTED, 1, message)
    leaving = threading.Thread(target=known.remove, args=(PLACE,))
    leaving.start()
    time.sleep(0.05)
    assert leaving.is_alive()
    assert message in known.messages
    changed, at = {"taken": (permute_words.M_TAKEN, message), "abort": (control_words.H_ABORT, 0)}[word]
    block.store(changed, value, at)
    leaving.join(20)
    assert not known.messages
    block.close()
