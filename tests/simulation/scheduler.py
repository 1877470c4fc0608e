"""Tasks of simulated processes on virtual time: one runs, and a seed draws which one, for how long, and the faults.

A task is a greenlet. It goes on until it waits, or until the steps are used up that it was granted: emitted code and
the runtime's Python count steps down in one word, COUNTDOWN. Time passes with the steps; where everybody waits it
jumps to the next timer. If no timer is left, the run hangs.
"""

from __future__ import annotations

import ctypes
import heapq
import random
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import greenlet

BEGIN_NS = 10**15
MOST_SWITCHES = 200_000  # in one run: more is a loop that makes no progress
LONGEST_RUN_NS = 200 * 10**9  # of virtual time

COUNTDOWN = ctypes.c_int32()  # the address is compiled into simulated programs' imports
CLOCK = ctypes.c_int64()  # their cycle counter


class TaskExit(BaseException):
    """Ends a task when the run is over."""


class Stuck(AssertionError):
    """Nobody can go on, or nobody gets anywhere."""


class State(Enum):
    READY = "ready"
    BLOCKED = "blocked"
    ENDED = "ended"


@dataclass(eq=False)
class Process:
    """A simulated process. pid: unlike those of this machine.  on_end: called when it has ended.  held: tasks that
    could go on if it were not stopped."""

    pid: int
    name: str
    is_alive: bool = True
    is_stopped: bool = False
    held: list[Task] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    on_end: list[Callable[[Process], None]] = field(default_factory=list)


class Task:
    """A thread of a simulated process."""

    __slots__ = (
        "deadline",
        "greenlet",
        "interrupted",
        "is_native",
        "name",
        "number",
        "process",
        "queues",
        "rank",
        "state",
        "thread",
        "why",
        "woken",
    )

    def __init__(self, number: int, process: Process, name: str, body: Callable[[], None], hub: greenlet.greenlet):
        self.number, self.process, self.name = number, process, name
        self.state, self.why = State.READY, "begins"
        self.queues: tuple[list[Task], ...] = ()
        self.deadline: Timer | None = None
        self.woken = self.interrupted = False
        self.is_native = False  # whether it is in emitted code
        self.rank = 0.0
        self.thread: Any = None
        self.greenlet = greenlet.greenlet(lambda *_: body(), parent=hub)

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Timer:
    __slots__ = ("action", "number", "when")

    def __init__(self, when: int, number: int, action: Callable[[], None]) -> None:
        self.when, self.number, self.action = when, number, action

    def __lt__(self, other: Timer) -> bool:
        return (self.when, self.number) < (other.when, other.number)


def _nothing() -> None:
    return None


@dataclass
class Policy:
    """How a seed schedules. step_ns: how long a step takes.  steps: granted at a time on average.  stalls: of how many
    switches a task is held up for a while.  ranked: whether tasks have priorities, which change now and then, instead
    of equal chances.  spurious: of how many waits on a word the waiter wakes without a reason."""

    step_ns: int
    steps: float
    stalls: float
    longest_stall_ns: int
    long_stalls: bool
    ranked: bool
    spurious: float

    @staticmethod
    def draw(rng: random.Random) -> Policy:
        return Policy(
            step_ns=rng.choice((100, 100, 2_000, 50_000)),
            steps=rng.choice((2.0, 5.0, 15.0, 50.0, 300.0)),
            stalls=rng.choice((0.0, 0.0, 0.005, 0.02, 0.2)),
            longest_stall_ns=rng.choice((100_000, 5_000_000, 80_000_000)),
            long_stalls=rng.random() < 0.5,
            ranked=rng.random() < 0.4,
            spurious=rng.choice((0.0, 0.0, 0.02)),
        )


class Scheduler:
    """One run. random: the source of every decision.  digest: of all of them, equal for equal runs.  failures: of
    tasks that ended by an exception.  log: what happened, where wanted."""

    def __init__(self, seed: int | str, *, logs: bool = False) -> None:
        self.random = random.Random(seed)
        self.policy = Policy.draw(self.random)
        self.now = BEGIN_NS
        self.steps = self.switches = 0
        self.abandoned = 0  # tasks
        self.digest = 0
        self.failures: list[str] = []
        self.log: list[str] | None = [] if logs else None
        self.is_ending = False
        self.tasks: list[Task] = []
        self.processes: list[Process] = []
        self.on_end: list[Callable[[Process], None]] = []  # called with every process that has ended
        self._ready: list[Task] = []
        self._timers: list[Timer] = []
        self._numbers = 0
        self._faults: list[tuple[int, Callable[[], None]]] = []  # by step, the next one last
        self._granted = 0
        self._hub = greenlet.getcurrent()
        self.current: Task = None  # type: ignore[assignment]

    # --- processes and tasks

    def process(self, name: str) -> Process:
        found = Process(1_000_000_000 + len(self.processes), name)
        self.processes.append(found)
        return found

    def spawn(self, process: Process, name: str, body: Callable[[], None]) -> Task:
        """A new task, ready to run. Its exceptions are failures of the run."""

        def run() -> None:
            try:
                body()
            except TaskExit:
                pass
            except BaseException as error:
                self.failures.append(f"{task} ended by {type(error).__name__}: {error}\n{traceback.format_exc()}")
            task.state = State.ENDED
            self._wake_up(task)  # tasks that wait for its end look at its state

        self._numbers += 1
        task = Task(self._numbers, process, name, run, self._hub)
        task.rank = self.random.random()
        process.tasks.append(task)
        self.tasks.append(task)
        self._make_ready(task)
        return task

    def _wake_up(self, task: Task) -> None:
        if task.thread is not None:
            self.wake(task.thread.waiters)

    def exit(self) -> None:
        """End the process of the current task; does not return."""
        self.kill(self.current.process)
        self._leave()

    def kill(self, process: Process) -> None:
        """None of its tasks ever runs again, the current one no longer than to its next switch."""
        if not process.is_alive:
            return
        self.note(f"{process.name} ends")
        process.is_alive = False
        for task in process.tasks:
            if task.state is State.ENDED:
                continue
            for waiting in (self._ready, process.held):
                if task in waiting:
                    waiting.remove(task)
            self._forget(task)
            task.state, task.why = State.ENDED, f"killed while it {task.why}"
        for action in (*self.on_end, *process.on_end):
            action(process)

    def stop(self, process: Process, nanoseconds: int) -> None:
        """None of its tasks runs for a while, the current one no longer than to its next switch."""
        if process.is_alive and not process.is_stopped:
            self.note(f"{process.name} is stopped for {nanoseconds / 1e9:.3f} s")
            process.is_stopped = True
            process.held = [task for task in self._ready if task.process is process]
            self._ready = [task for task in self._ready if task.process is not process]
            self.after(nanoseconds, lambda: self._continue(process))

    def _continue(self, process: Process) -> None:
        self.note(f"{process.name} goes on")
        process.is_stopped = False
        self._ready += process.held
        process.held = []

    def interrupt(self, task: Task) -> None:
        """KeyboardInterrupt in a task, as soon as it runs Python; a wait of it ends."""
        self.note(f"{task} is interrupted")
        task.interrupted = True
        if task.state is State.BLOCKED:
            self._unblock(task)
        elif task is self.current:
            COUNTDOWN.value = 1

    def _raise_interrupt(self) -> None:
        task = self.current
        if task.interrupted and not task.is_native:
            task.interrupted = False
            raise KeyboardInterrupt

    def _make_ready(self, task: Task) -> None:
        task.state = State.READY
        (task.process.held if task.process.is_stopped else self._ready).append(task)

    def _forget(self, task: Task) -> None:
        """Take a task out of the queues that it waits in."""
        for queue in task.queues:
            queue.remove(task)
        if task.deadline is not None:
            task.deadline.action = _nothing
        task.queues, task.deadline = (), None

    # --- running

    def run(self) -> None:
        """Until all tasks have ended, or none can go on: Stuck then, if some still wait. In the hub."""
        self._grant()
        while any(task.state is not State.ENDED for task in self.tasks):
            self._pick().greenlet.switch()

    def step(self) -> None:
        """A point at which another task may go on; in Python. Emitted code counts by itself."""
        left = COUNTDOWN.value - 1
        COUNTDOWN.value = left
        if left <= 0:
            self.preempt()

    def pause(self) -> None:
        """A step in which no KeyboardInterrupt comes."""
        task = self.current
        task.is_native, before = True, task.is_native
        try:
            self.step()
        finally:
            task.is_native = before

    def preempt(self) -> None:
        """The steps are used up: a fault if it is due, then perhaps a stall, or another task."""
        if self.is_ending:
            COUNTDOWN.value = 1 << 30
            raise TaskExit
        self._count()
        self._cause_faults()
        policy, task = self.policy, self.current
        if task.state is State.ENDED:
            self._leave()
        if policy.ranked:
            task.rank = self.random.random()
        if policy.stalls and self.random.random() < policy.stalls:
            chance = self.random.random()
            self.sleep_ns(int(policy.longest_stall_ns * (chance if policy.long_stalls else chance**8)))
            self._grant()
        else:
            self._grant()
            self._make_ready(task)
            self._leave()
        if task.interrupted:
            self._raise_interrupt()

    def yield_now(self) -> None:
        """Let others run, if there are any."""
        if self.is_ending:
            raise TaskExit
        self._count()
        task = self.current
        self._make_ready(task)
        task.rank = 0.0
        self._leave()

    def block(self, queues: Iterable[list[Task]], nanoseconds: int | None, why: str) -> bool:
        """The current task waits in queues until it is woken in one, at most so long; whether it was woken."""
        if self.is_ending:
            raise TaskExit
        self._count()
        task = self.current
        task.woken, task.state, task.why, task.queues = False, State.BLOCKED, why, tuple(queues)
        for queue in task.queues:
            queue.append(task)
        if nanoseconds is not None:
            task.deadline = self.after(max(0, nanoseconds), lambda: self._unblock(task))
        self._leave()
        if task.interrupted:
            self._raise_interrupt()
        return task.woken

    def sleep_ns(self, nanoseconds: int) -> None:
        self.block((), nanoseconds, "sleeps")

    def wake(self, queue: list[Task], count: int = 1 << 30) -> int:
        """Make that many of a queue ready, drawn at random; how many they were."""
        woken = 0
        while queue and woken < count:
            task = queue[self.random.randrange(len(queue))] if count < len(queue) else queue[0]
            task.woken = True
            self._unblock(task)
            woken += 1
        return woken

    def _unblock(self, task: Task) -> None:
        self._forget(task)
        task.why = "runs"
        self._make_ready(task)

    def after(self, nanoseconds: int, action: Callable[[], None]) -> Timer:
        """Call `action` later. A timer is cancelled by another `action`, which does nothing."""
        self._numbers += 1
        timer = Timer(self.now + nanoseconds, self._numbers, action)
        heapq.heappush(self._timers, timer)
        return timer

    def fault(self, steps: int, action: Callable[[], None]) -> None:
        """Do something so many steps from now, in the middle of whatever runs then."""
        self._count()
        self._faults.append((self.steps + steps, action))
        self._faults.sort(key=lambda fault: -fault[0])
        self._grant()

    def drop_faults(self) -> None:
        """Nothing that was planned happens any more."""
        self._faults.clear()
        self.current.interrupted = False

    def note(self, text: str) -> None:
        if self.log is not None:
            who = f"{self.current}: " if self.current is not None else ""
            self.log.append(f"{(self.now - BEGIN_NS) / 1e6:12.4f} ms  {who}{text}")

    def _cause_faults(self) -> None:
        while self._faults and self._faults[-1][0] <= self.steps:
            self._faults.pop()[1]()

    def _count(self) -> None:
        """Account for the steps that were made since they were counted last."""
        made = self._granted - COUNTDOWN.value
        self._granted = COUNTDOWN.value
        self.steps += made
        self.now += made * self.policy.step_ns
        CLOCK.value = self.now

    def _grant(self) -> None:
        grant = 1 + int(self.random.expovariate(1 / self.policy.steps))
        if self._faults:
            grant = max(1, min(grant, self._faults[-1][0] - self.steps))
        self._granted = COUNTDOWN.value = grant

    def _leave(self) -> None:
        """Let the next task go on; returns when this one is picked again."""
        if self.is_ending:
            raise TaskExit
        task = self._pick()
        if task.greenlet is not greenlet.getcurrent():
            task.greenlet.switch()
        if self.is_ending:
            raise TaskExit

    def _pick(self) -> Task:
        """The task that runs next. If none can go on, the hub raises Stuck."""
        timers = self._timers
        while True:
            while timers and timers[0].when <= self.now:
                heapq.heappop(timers).action()
            if self._ready:
                break
            if not timers:
                self._give_up("nobody is left who could wake anybody")
            self.now = CLOCK.value = max(self.now, timers[0].when)
        self.switches += 1
        if self.switches > MOST_SWITCHES or self.now - BEGIN_NS > LONGEST_RUN_NS:
            self._give_up("it does not end")
        ready = self._ready
        if len(ready) == 1:
            task = ready.pop()
        else:
            if self.policy.ranked:
                index = max(range(len(ready)), key=lambda i: ready[i].rank)
            else:
                index = int(self.random.random() * len(ready))
            task = ready[index]
            ready[index] = ready[-1]
            ready.pop()
        self.current = task
        self.digest = (self.digest * 1000003 + task.number * 65537 + self.now) & 0xFFFFFFFFFFFFFFFF
        return task

    def _give_up(self, why: str) -> None:
        self._hub.throw(Stuck(f"{why}\n{self.waits()}"))

    def waits(self) -> str:
        """The state of every task."""
        return "\n".join(
            f"  {task}: {task.state.value}, {task.why}" for task in self.tasks if task.state is not State.ENDED
        )

    # --- the end

    def abandon(self) -> None:
        """Leave the current task, which does not end, where it is."""
        self.abandoned += 1
        self._hub.switch()

    def end(self) -> None:
        """Unwind the tasks that are left. In the hub, where `run` has returned or raised."""
        self.is_ending = True
        COUNTDOWN.value = 1 << 30
        for task in self.tasks:
            if task.greenlet and not task.greenlet.dead:
                if task.is_native and not task.process.is_alive:
                    # killed amid emitted code, whose arrays and program may have been given up since: it never goes on
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task.greenlet))
                    continue
                self.current = task
                task.greenlet.throw(TaskExit)
