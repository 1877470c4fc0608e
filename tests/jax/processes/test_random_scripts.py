"""Random scripts in which real processes agree: right numbers, and no alarm."""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group

SCRIPT = """
    import random

    common, own = random.Random(SEED), random.Random(100 * SEED + PROCESS)
    n = jax.device_count()
    pool = [lambda v, k: jax.lax.psum(k * v, "d"), lambda v, k: jax.lax.pmax(v + k, "d"),
            lambda v, k: jax.lax.all_gather(v - k, "d", tiled=True).sum()[None]]
    right = [lambda a, k: k * a.sum(), lambda a, k: a.max() + k, lambda a, k: (a - k).sum()]
    pending, ends = [], threading.Event()

    def local():
        while not ends.is_set():
            k = own.randrange(100)
            assert int(jax.jit(lambda v: v + 1)(jax.device_put(np.int32(k), own.choice(jax.local_devices())))) == k + 1

    threads = [threading.Thread(target=local) for _ in range(common.randrange(2))]
    for thread in threads:
        thread.start()
    for turn in range(STEPS):
        ids = sorted(common.sample(range(n), common.randrange(1, n + 1)))
        which, k = common.randrange(len(pool)), common.randrange(1, 4)
        mesh = Mesh(np.array(jax.devices())[ids], "d")
        values = np.array([common.randrange(50) for _ in ids], np.float32)
        made = mapped(lambda v, which=which, k=k: pool[which](v, k), out=P("d"), mesh=mesh)(sharded(values, mesh))
        pending.append((made, right[which](values, k)))
        if own.random() < 0.2:
            time.sleep(own.random() * 0.1)
        if own.random() < 0.3:
            jax.jit(lambda v: v.sum())(np.arange(own.randrange(1, 5)))
        while pending and own.random() < 0.4:
            made, expected = pending.pop(0)
            assert here(made) == [[expected]] * len(here(made)), (turn, here(made), expected)
    for made, expected in pending:
        assert here(made) == [[expected]] * len(here(made))
    ends.set()
    for thread in threads:
        thread.join()
    require_right_total()
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in range(1, 8))])
def test_agreeing_processes_get_right_numbers_and_no_alarm(pair: Group, seed: int) -> None:
    pair.start()
    before = len(pair.errors)
    pair.printed(SCRIPT.replace("SEED", str(seed)).replace("STEPS", "25"))
    assert pair.errors[before:] == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_three_agreeing_processes(seed: int) -> None:
    with Group(3, devices=2) as group:
        group.printed(SCRIPT.replace("SEED", str(seed)).replace("STEPS", "40"))
        assert group.errors == ""
