"""The owner, or the process of a device, is killed amid a call of real processes: both are told, and so are later
calls; nothing waits for ever, and nothing is left."""

from __future__ import annotations

import pytest

from tests.jax.processes.group import Group

SCRIPT = """
    from distxla.machine.processes import command_line, process_ids, status_fields
    def parent(pid):
        return int(status_fields(pid)[1])
    def is_mine(pid, wanted):  # whether a process is the owner that process 0 has started, or of that one's
        while pid > 1:
            if pid == wanted:
                return True
            pid = parent(pid)
        return False
    def found(name):
        for pid in process_ids():
            try:
                if name in command_line(pid):
                    yield pid
            except OSError:
                pass
    def kill():
        (owner,) = [pid for pid in found(b"owner_process") if parent(pid) == os.getpid()]
        name = NAME
        time.sleep(0.5)
        os.kill(owner if name is None else next(pid for pid in found(name) if is_mine(pid, owner)), signal.SIGKILL)
    def endless(v):
        return jax.lax.while_loop(lambda v: v[0] >= 0, lambda v: v + 0 * jax.lax.psum(v, "d"), v)
    x, first = sharded(np.arange(4.0)), mapped(endless, out=P("d"))
    here(total(x))
    if PROCESS == 0:
        threading.Thread(target=kill).start()
    for _ in range(3):
        told = caught(lambda: here(first(x) if _ == 0 else total(x)))
        print(told.splitlines()[0])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "said"),
    [(b"ray::Replica", "the replica of device"), (None, "the process that owns the devices (pid")],
    ids=["replica", "owner"],
)
def test_a_loss_amid_a_call_is_told_to_both_and_to_later_calls(name: bytes | None, said: str) -> None:
    with Group(2) as group:
        for told in group.printed(SCRIPT.replace("NAME", repr(name))):
            lines = told.splitlines()
            assert len(lines) == 3
            assert all(said in line and "SIGKILL" in line for line in lines), lines
