"""Stand-ins for the clock, `threading`, `queue` and thread pools in a simulated run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from tests.simulation.scheduler import Scheduler, State, Task, TaskExit


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


class Threads:
    """The stand-ins for one run."""

    def __init__(self, scheduler: Scheduler) -> None:
        class Bound:
            """Objects made by the runtime know the run's scheduler."""

            run = scheduler

        def bind(kind: type) -> type:
            return type(kind.__name__, (kind, Bound), {})

        lock, condition = bind(Lock), bind(Condition)
        self.lock, self.condition = lock, condition
        self.thread, self.pool, self.simple_queue = bind(Thread), bind(Pool), bind(SimpleQueue)
        self._main = SimpleNamespace(name="MainThread", daemon=False, waiters=[])
        self.threading = SimpleNamespace(
            Thread=self.thread,
            Lock=lock,
            RLock=bind(RLock),
            Condition=condition,
            Event=bind(Event),
            Semaphore=bind(Semaphore),
            BoundedSemaphore=bind(Semaphore),
            current_thread=lambda: scheduler.current.thread or self._main,
            main_thread=lambda: self._main,
            get_ident=lambda: scheduler.current.number,
            TIMEOUT_MAX=1e9,
        )
        self.queue = SimpleNamespace(SimpleQueue=self.simple_queue, Empty=Empty)
        self.time = SimpleNamespace(
            monotonic=lambda: scheduler.now / 1e9,
            monotonic_ns=lambda: scheduler.now,
            time_ns=lambda: 1_700_000_000 * 10**9 + scheduler.now,
            sleep=lambda seconds: scheduler.block((), _ns(seconds), "sleeps"),
        )


class Empty(Exception):
    """queue.Empty."""


class Lock:
    run: Scheduler
    reentrant = False

    def __init__(self) -> None:
        self.owner: Task | None = None
        self.depth = 0
        self.waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = self.run
        run.step()
        if self.reentrant and self.owner is run.current:
            self.depth += 1
            return True
        end = None if timeout < 0 else run.now + int(timeout * 1e9)
        while self.owner is not None:
            if not blocking or (end is not None and run.now >= end):
                return False
            run.block((self.waiters,), None if end is None else end - run.now, "waits for a lock")
        self.owner, self.depth = run.current, 1
        return True

    def release(self) -> None:
        if self.owner is None:
            if self.run.is_ending:
                raise TaskExit
            raise RuntimeError("release of a lock that nobody holds")
        self.run.pause()
        self.depth -= 1
        if self.depth:
            return
        self.owner = None
        if self.waiters:
            self.run.wake(self.waiters, 1)

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release_all(self) -> int:
        """For a condition's wait: give it up, however often it was taken; how often."""
        depth, self.depth = self.depth, 1
        self.release()
        return depth

    def take_again(self, depth: int) -> None:
        """No interrupt arrives meanwhile where it is an RLock, as a condition's is: CPython takes that with no look at
        signals."""
        task, is_late = self.run.current, False
        while self.owner is not None:
            try:
                self.run.block((self.waiters,), None, "waits for a lock")
            except KeyboardInterrupt:
                if not self.reentrant:
                    raise
                is_late = True
        self.owner, self.depth = task, depth
        if is_late:
            self.run.interrupt(task)


class RLock(Lock):
    reentrant = True


class Condition:
    run: Scheduler

    def __init__(self, lock: Any = None) -> None:
        if lock is None:
            lock = type("RLock", (RLock,), {"run": self.run})()
        self.lock = lock
        self.acquire, self.release = lock.acquire, lock.release
        self.waiters: list[Task] = []

    def __enter__(self) -> bool:
        return self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        if self.lock.owner is not self.run.current:
            raise RuntimeError("wait without the condition's lock")
        queue: list[Task] = self.waiters
        depth = self.lock.release_all()
        try:
            return self.run.block((queue,), _ns(timeout), "waits on a condition")
        finally:
            if not self.run.is_ending:
                self.lock.take_again(depth)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self.run.now + int(timeout * 1e9)
        while not (found := predicate()):
            if end is not None and self.run.now >= end:
                return found
            self.wait(None if end is None else (end - self.run.now) / 1e9)
        return found

    def notify(self, n: int = 1) -> None:
        if self.lock.owner is not self.run.current:
            raise RuntimeError("notify without the condition's lock")
        self.run.wake(self.waiters, n)

    def notify_all(self) -> None:
        self.notify(1 << 30)


class Event:
    run: Scheduler

    def __init__(self) -> None:
        self.flag = False
        self.waiters: list[Task] = []

    def is_set(self) -> bool:
        self.run.step()
        return self.flag

    def set(self) -> None:
        self.flag = True
        self.run.wake(self.waiters)

    def clear(self) -> None:
        self.flag = False

    def wait(self, timeout: float | None = None) -> bool:
        run = self.run
        run.step()
        end = None if timeout is None else run.now + int(timeout * 1e9)
        while not self.flag:
            if end is not None and run.now >= end:
                break
            run.block((self.waiters,), None if end is None else end - run.now, "waits for an event")
        return self.flag


class Semaphore:
    run: Scheduler

    def __init__(self, value: int = 1) -> None:
        self.value = value
        self.waiters: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        run = self.run
        run.step()
        end = None if timeout is None else run.now + int(timeout * 1e9)
        while self.value == 0:
            if not blocking or (end is not None and run.now >= end):
                return False
            run.block((self.waiters,), None if end is None else end - run.now, "waits for a semaphore")
        self.value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self.value += n
        self.run.wake(self.waiters, n)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class Thread:
    run: Scheduler

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name, self.daemon = name or "thread", daemon
        self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
        self._task: Task | None = None
        self.waiters: list[Task] = []

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        run = self.run
        self._task = run.spawn(run.current.process, self.name, self._body)
        self._task.thread = self
        run.step()

    def _body(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number

    def is_alive(self) -> bool:
        return self._task is not None and self._task.state is not State.ENDED

    def join(self, timeout: float | None = None) -> None:
        run = self.run
        if self._task is None:
            raise RuntimeError("cannot join a thread before it is started")
        if self._task is run.current:
            raise RuntimeError("cannot join the current thread")
        end = None if timeout is None else run.now + int(timeout * 1e9)
        run.step()
        while self._task.state is not State.ENDED and (end is None or run.now < end):
            run.block((self.waiters,), None if end is None else end - run.now, f"joins {self.name}")


class SimpleQueue:
    run: Scheduler

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self.waiters: list[Task] = []

    def put(self, item: Any) -> None:
        self._items.append(item)
        self.run.wake(self.waiters, 1)
        self.run.step()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        run = self.run
        run.step()
        end = None if timeout is None else run.now + int(timeout * 1e9)
        while not self._items:
            if not block or (end is not None and run.now >= end):
                raise Empty
            run.block((self.waiters,), None if end is None else end - run.now, "waits for work")
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Pool:
    """concurrent.futures.ThreadPoolExecutor, for work whose results are not used."""

    run: Scheduler

    def __init__(self, max_workers: int, thread_name_prefix: str = "pool") -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._work: deque[Callable[[], Any]] = deque()
        self._waiting: list[Task] = []
        self._threads: list[Any] = []
        self._closed = False

    def submit(self, function: Callable[..., Any], *args: Any) -> None:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._work.append(lambda: function(*args))
        if not self.run.wake(self._waiting, 1) and len(self._threads) < self._most:
            kind = type("Thread", (Thread,), {"run": self.run})
            thread = kind(target=self._serve, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while True:
            if self._work:
                try:
                    self._work.popleft()()
                except Exception:
                    continue  # kept by a future that nobody looks at
            elif self._closed:
                return
            else:
                self.run.block((self._waiting,), None, "waits for work")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            self._work.clear()
        self.run.wake(self._waiting)
        for thread in self._threads if wait else ():
            thread.join()
