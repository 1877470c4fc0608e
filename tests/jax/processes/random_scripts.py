"""Random scripts for several JAX processes that agree: the same steps in all, with other work and sleeps in between."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Final

import numpy as np

from distxla.lazy_dataclass import dataclass

MODULO: Final = 97
FUNCTIONS: Final = ("add_sum", "roll", "scale", "gather", "give_up", "fresh", "reverse")
MOST_SLEEP_S: Final = 0.3


@dataclass(frozen=True)
class Step:
    """kind: "call" of `function` on the array of these members; "check": compare it; "local": a program on the device
    of each process, not in step; "sleep": of one process; "all": what JAX offers for all processes."""

    kind: str
    members: tuple[int, ...] = ()
    function: str = ""
    seconds: float = 0.0


def script_of(seed: int, processes: int) -> list[Step]:
    """The same in all processes."""
    draw = random.Random(seed)
    sets = [tuple(range(processes))]
    for _ in range(draw.randrange(3)):
        sets.append(tuple(sorted(draw.sample(range(processes), draw.randint(1, processes)))))
    steps = []
    for _ in range(draw.randint(3, 12)):
        kind = draw.choices(("call", "check", "local", "sleep", "all"), (12, 3, 4, 1, 1))[0]
        members = draw.choice(sets)
        if kind == "sleep":
            steps.append(Step(kind, (draw.randrange(processes),), seconds=draw.random() * MOST_SLEEP_S))
        else:
            steps.append(Step(kind, sets[0] if kind == "all" else members, draw.choice(FUNCTIONS)))
    return [*steps, *(Step("check", members) for members in sets)]


def wrong_step_of(seed: int, processes: int) -> tuple[int, int, str] | None:
    """Where one process calls something else: the number of the step, the process, its function; None where no call is
    of several processes."""
    draw = random.Random(f"wrong {seed}")
    script = script_of(seed, processes)
    places = [k for k, step in enumerate(script) if step.kind == "call" and len(step.members) > 1]
    if not places:
        return None
    place = draw.choice(places)
    mine = script[place].function
    others = [name for name in FUNCTIONS if name != mine and {name, mine} != {"scale", "fresh"}]  # one program
    return place, draw.choice(script[place].members), draw.choice(others)


def begun(seed: int, members: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array of these members, before their first call."""
    random_ = np.random.default_rng([seed, *members])
    return random_.integers(0, MODULO, 8 * len(members), dtype=np.int32)


def expected(function: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a function gives."""
    if function in ("add_sum", "gather"):
        return (x + x.sum(dtype=np.int32)) % MODULO
    if function == "roll":
        return np.roll(x, 3)
    if function == "reverse":
        return x[::-1].copy()
    return (x * 3 + 1) % MODULO


class Agent:
    """One of the processes."""

    def __init__(self, processes: int, process: int) -> None:
        import jax

        self.jax, self.processes, self.process = jax, processes, process
        self.local = jax.jit(lambda x: (x * 5 + 2) % MODULO)
        self._jitted: dict[tuple[tuple[int, ...], str], Any] = {}

    def run(self, seed: int, *, is_wrong: bool = False) -> int:
        """A script; AssertionError where a result is wrong. is_wrong: one process calls something else, once.

        Returns how often this one was told that they disagree.
        """
        wrong = wrong_step_of(seed, self.processes) if is_wrong else None
        told = 0
        arrays: dict[tuple[int, ...], Any] = {}
        values: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
        for number, step in enumerate(script_of(seed, self.processes)):
            if self.process not in step.members:
                continue
            if step.kind == "sleep":
                time.sleep(step.seconds)
            elif step.kind == "local":
                self._local(random.Random(f"{seed} {self.process}"))
            elif step.kind == "all":
                self._all(seed)
            else:
                members = step.members
                if members not in arrays:
                    values[members] = begun(seed, members)
                    arrays[members] = self._array(members, values[members])
                if wrong is not None and number == wrong[0]:
                    function = wrong[2] if self.process == wrong[1] else step.function
                    self._require_answer(self._function(members, function), arrays.pop(members))
                    told += 1
                elif step.kind == "check":
                    self._check(arrays[members], values[members], f"script {seed}")
                else:
                    arrays[members] = self._function(members, step.function)(arrays[members])
                    values[members] = expected(step.function, values[members])
        return told

    def _require_answer(self, function: Any, array: Any) -> None:
        said = ""
        try:
            self.jax.block_until_ready(function(array))
        except self.jax.errors.JaxRuntimeError as error:
            said = str(error)
        assert "processes disagree in call" in said, said or "nobody has said that processes disagree"

    def _sharding(self, members: tuple[int, ...], *axes: str) -> Any:
        sharding = self.jax.sharding
        devices = np.array([d for d in self.jax.devices() if d.process_index in members])
        return sharding.NamedSharding(sharding.Mesh(devices, ("d",)), sharding.PartitionSpec(*axes))

    def _array(self, members: tuple[int, ...], value: np.ndarray[Any, Any]) -> Any:
        sharding = self._sharding(members, "d")
        return self.jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    def _function(self, members: tuple[int, ...], name: str) -> Any:
        """Compiled; `fresh` anew each time, as of a function within a function."""
        jax = self.jax
        cut, whole = self._sharding(members, "d"), self._sharding(members)
        if name == "fresh":
            return jax.jit(lambda x: (x * 3 + 1) % MODULO, out_shardings=cut)
        key = members, name
        if key not in self._jitted:
            bodies = {
                "add_sum": lambda x: (x + x.sum()) % MODULO,
                "gather": lambda x: (jax.lax.with_sharding_constraint(x, whole) + x.sum()) % MODULO,
                "roll": lambda x: jax.numpy.roll(x, 3),
                "reverse": lambda x: x[::-1],
                "scale": lambda x: (x * 3 + 1) % MODULO,
                "give_up": lambda x: (x * 3 + 1) % MODULO,
            }
            donated = (0,) if name == "give_up" else ()
            self._jitted[key] = jax.jit(bodies[name], out_shardings=cut, donate_argnums=donated)
        return self._jitted[key]

    def _check(self, array: Any, value: np.ndarray[Any, Any], where: str) -> None:
        for shard in array.addressable_shards:
            found = np.asarray(shard.data)
            assert np.array_equal(found, value[shard.index]), f"{where}: {found} at {shard.index}, not {value}"

    def _local(self, draw: random.Random) -> None:
        """Local programs, in a thread or here."""

        def work() -> None:
            for _ in range(draw.randint(1, 4)):
                x = np.arange(draw.randint(1, 6), dtype=np.int32)
                assert np.array_equal(np.asarray(self.local(x)), (x * 5 + 2) % MODULO)

        if draw.random() < 0.5:
            return work()
        failures: list[BaseException] = []

        def caught() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=caught)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return None

    def _all(self, seed: int) -> None:
        from jax.experimental import multihost_utils

        mine = np.array([seed, self.process], np.int32)
        found = multihost_utils.process_allgather(mine)
        assert np.array_equal(found, [[seed, p] for p in range(self.processes)]), f"script {seed}: {found}"


__all__ = ["FUNCTIONS", "Agent", "Step", "script_of", "wrong_step_of"]
