"""Lives of JAX processes and of the owner: several clients one after the other, ends, interrupts, forks."""

from __future__ import annotations

from pathlib import Path

from tests.jax.processes.group import Group, Member


def owner_of(member: Member) -> int:
    """The pid of the owner's process, which process 0 has started."""
    children = Path(f"/proc/{member.popen.pid}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    (found,) = [pid for pid in pids if b"owner_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def test_further_clients_have_an_owner_of_their_own() -> None:
    with Group(2, devices=1) as group:
        script = """
            import gc
            import jax.extend.backend

            for _ in range(2):
                require_right_total()
                jax.extend.backend.clear_backends()
                del MESH, total
                gc.collect()
                MESH = Mesh(jax.devices(), "d")
                x = jax.device_put(np.arange(2.0), NamedSharding(MESH, P("d")))
                total = mapped(lambda v: jax.lax.psum(v, "d"), mesh=MESH)
                print(here(total(x)))
                del x
        """
        assert group.printed(script) == ["[[1.0]]\n[[1.0]]"] * 2
        assert group.errors == ""


def test_an_interrupt_in_one_process_ends_the_call_for_all_and_the_next_one_is_right(pair: Group) -> None:
    waits = """
        x = sharded(np.arange(4.0))
        require_right_total()
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            here(total(x))
            print("no interrupt")
        except KeyboardInterrupt:
            print("interrupted")
        barrier("interrupted")
        require_right_total()
    """
    comes = """
        x = sharded(np.arange(4.0))
        require_right_total()
        barrier("interrupted")
        print(caught(lambda: here(total(x))))
        require_right_total()
    """
    first, second = pair.printed(waits, comes)
    assert first == "interrupted"
    assert "process 0 can't take part in call" in second
    assert "the call was interrupted" in second


def test_a_forked_child_has_no_devices_and_leaves_those_of_its_parent(pair: Group) -> None:
    script = """
        import warnings

        x = sharded(np.arange(4.0))
        read, write = os.pipe()
        with warnings.catch_warnings(action="ignore"):
            pid = os.fork()
        if not pid:
            os.write(write, caught(lambda: str(jax.device_put(np.ones(2)))).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(os.read(read, 1000).decode())
        os.close(read), os.close(write)
        require_right_total()
    """
    for told in pair.printed(script):
        assert "which has forked" in told


def test_the_end_of_the_owner_is_told_in_all_processes() -> None:
    with Group(2, devices=1) as group:
        group.printed("shared['x'] = sharded(np.arange(2.0)); require_right_total()")
        owner = owner_of(group.members[0])
        script = f"""
            made = total(shared["x"])
            barrier("submitted")
            if not PROCESS:
                os.kill({owner}, signal.SIGKILL)
            told = ""
            while "lost" not in told:
                told = caught(lambda: here(total(shared["x"])))
            print(told)
            print(caught(lambda: here(total(shared["x"]))))
            print(caught(lambda: jax.jit(lambda v: v + 1)(np.ones(3))))
            shared.clear()
        """
        for told in group.printed(script):
            for line in told.splitlines():
                assert f"lost: the process that owns the devices (pid {owner}) was ended by SIGKILL" in line
