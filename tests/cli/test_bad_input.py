"""Programs that can't communicate: what `distxla check` prints, word by word, and that nothing is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.called import call

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n"
SEND = """  t = token[] after-all()
  s = (f32[4], u32[], token[]) send(x, t), channel_id={channel}{send}
  d = token[] send-done(s), channel_id={channel}
"""
RECV = """  v = token[] after-all()
  r = ({shape}, u32[], token[]) recv(v), channel_id={channel}{recv}
  e = ({shape}, token[]) recv-done(r), channel_id={channel}
"""


PAIRS = "_xla_send_recv_source_target_pairs"  # <pairs> in the texts below


def module(name: str, body: str, header: str = ", replica_count=4", before: str = "") -> str:
    return f"HloModule {name}{header}\n{before}ENTRY main {{\n  x = f32[4] parameter(0)\n{body}\n}}\n"


def reducing(name: str, attributes: str) -> str:
    return module(name, f"  ROOT s = f32[4] all-reduce(x), {attributes}, to_apply=add", before=ADD)


def permuting(pairs: str) -> str:
    return module("m", f"  ROOT p = f32[4] collective-permute(x), source_target_pairs={pairs}")


def pairs(text: str) -> str:
    return f', frontend_attributes={{{PAIRS}="{text}"}}'


def transfers(
    name: str = "m",
    *,
    send: str | None = "{{0,1}}",
    recv: str | None = "{{0,1}}",
    channel: int = 1,
    shape: str = "f32[4]",
    header: str = ", num_partitions=4",
    last: str = "negate(x)",
) -> str:
    """A send and a recv with pairs ("" for none), and what is computed; None leaves one of them out."""
    body = ""
    if send is not None:
        body += SEND.format(channel=channel, send=pairs(send) if send else "")
    if recv is not None:
        body += RECV.format(channel=channel, shape=shape, recv=pairs(recv) if recv else "")
    return module(name, f"{body}  ROOT n = f32[4] {last}", header, ADD if "to_apply" in last else "")


BAD: dict[str, tuple[list[str], dict[str, str], str]] = {
    "groups that overlap": (
        ["m.hlo"],
        {"m.hlo": reducing("m", "replica_groups={{0,1},{1,2}}")},
        """m.hlo:9:34: verify: all-reduce.C1: an id of replica_groups is negative or is given twice: [[0, 1], [1, 2]]
      ROOT s = f32[4] all-reduce(x), replica_groups={{0,1},{1,2}}, to_apply=add
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "groups that miss an id": (
        ["m.hlo"],
        {"m.hlo": reducing("m", "replica_groups={{0,1},{2}}")},
        """m.hlo:9:34: verify: all-reduce.C5: the groups must hold each id of 0..3 once (cross-replica groups of 4 \
replicas x 1 partitions), they hold [0, 1, 2]
      ROOT s = f32[4] all-reduce(x), replica_groups={{0,1},{2}}, to_apply=add
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "groups of other ids than the run's, which flags give": (
        ["m.hlo", "--replicas", "2"],
        {"m.hlo": module("m", "  ROOT s = f32[4] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add", "", ADD)},
        """m.hlo:9:34: verify: all-reduce.C5: the groups must hold each id of 0..1 once (cross-replica groups of 2 \
replicas x 1 partitions), they hold [0, 1, 2, 3]
      ROOT s = f32[4] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "groups of a module that says no counts, without flags": (
        ["m.hlo"],
        {"m.hlo": module("m", "  ROOT s = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add", "", ADD)},
        """m.hlo:9:34: verify: all-reduce.C5: the groups must hold each id of 0..0 once (cross-replica groups of 1 \
replicas x 1 partitions), they hold [0, 1]
      ROOT s = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add
                                     ^^^^^^^^^^^^^^^^^^^^^^
    neither the header nor --replicas, --partitions say how many devices: one is assumed
    the program's groups and pairs imply --replicas 2
""",
    ),
    "groups of partitions as well as replicas, of which the header says one": (
        ["m.hlo"],
        {
            "m.hlo": module(
                "m",
                "  ROOT s = f32[4] all-reduce(x), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, "
                "to_apply=add",
                ", replica_count=2",
                ADD,
            )
        },
        """m.hlo:9:48: verify: all-reduce.C5: the groups must hold each id of 0..1 once (flattened-id groups of 2 \
replicas x 1 partitions), they hold [0, 1, 2, 3, 4, 5, 6, 7]
      ROOT s = f32[4] all-reduce(x), channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=add
                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^
    the program's groups and pairs imply --partitions 4
""",
    ),
    "a gather whose result says how many replicas there are": (
        ["m.hlo"],
        {"m.hlo": module("m", "  ROOT g = f32[12] all-gather(x), replica_groups={}, dimensions={0}", "")},
        """m.hlo:4:12: verify: all-gather.shape: with groups of 1 the result is f32[4], the text says f32[12]
      ROOT g = f32[12] all-gather(x), replica_groups={}, dimensions={0}
               ^^^^^^^
    neither the header nor --replicas, --partitions say how many devices: one is assumed
    the program's groups and pairs imply --replicas 3
""",
    ),
    "groups of unequal sizes": (
        ["m.hlo"],
        {"m.hlo": module("m", "  ROOT g = f32[8] all-gather(x), replica_groups={{0,1},{2},{3}}, dimensions={0}")},
        """m.hlo:4:34: verify: all-gather.C2: groups of sizes [1, 2]: all must have the same
      ROOT g = f32[8] all-gather(x), replica_groups={{0,1},{2},{3}}, dimensions={0}
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "pairs with a repeated source": (
        ["m.hlo"],
        {"m.hlo": permuting("{{0,1},{0,2}}")},
        """m.hlo:4:42: verify: collective-permute.C1: a source is negative or in two pairs: [0, 0]
      ROOT p = f32[4] collective-permute(x), source_target_pairs={{0,1},{0,2}}
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "pairs with a repeated target": (
        ["m.hlo"],
        {"m.hlo": permuting("{{0,1},{2,1}}")},
        """m.hlo:4:42: verify: collective-permute.C1: a target is negative or in two pairs: [1, 1]
      ROOT p = f32[4] collective-permute(x), source_target_pairs={{0,1},{2,1}}
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "pairs with an id that doesn't exist": (
        ["m.hlo"],
        {"m.hlo": permuting("{{0,1},{3,4}}")},
        """m.hlo:4:42: verify: collective-permute.C2: pair {3,4} names an id beyond 3 (cross-replica pairs)
      ROOT p = f32[4] collective-permute(x), source_target_pairs={{0,1},{3,4}}
                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a module for 8 devices on 4": (
        ["m.hlo", "--partitions", "4"],
        {"m.hlo": module("m", "  ROOT n = f32[4] negate(x)", ", is_scheduled=true, num_partitions=8")},
        """m.hlo:1:33: argument: m.hlo says num_partitions=8, --partitions says 4
    HloModule m, is_scheduled=true, num_partitions=8
                                    ^^^^^^^^^^^^^^^^
""",
    ),
    "a module for 8 devices, of which 4 are given": (
        ["m.hlo@0-3"],
        {"m.hlo": module("m", "  ROOT s = f32[4] all-reduce(x), to_apply=add", ", replica_count=8", ADD)},
        """m.hlo:9:8: verify: world.devices: s joins devices 0, 1, 2, 3, 4, 5, 6, 7, but no program runs on 4, 5, 6, 7
      ROOT s = f32[4] all-reduce(x), to_apply=add
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "programs that disagree about the world": (
        ["a.hlo@0,1", "b.hlo@2,3"],
        {
            "a.hlo": module("a", "  ROOT n = f32[4] negate(x)", ", num_partitions=4"),
            "b.hlo": module("b", "  ROOT n = f32[4] negate(x)", ", num_partitions=2"),
        },
        """b.hlo:1:14: argument: b.hlo says num_partitions=2, a.hlo says 4
    HloModule b, num_partitions=2
                 ^^^^^^^^^^^^^^^^
""",
    ),
    "a collective that another program of the group lacks": (
        ["a.hlo@0,1", "b.hlo@2,3"],
        {"a.hlo": reducing("a", "replica_groups={}"), "b.hlo": module("b", "  ROOT n = f32[4] negate(x)")},
        """a.hlo:9:34: mismatch: s joins devices 0, 1, 2, 3, but b, which runs on 2, 3, has no \
collective of that group
      ROOT s = f32[4] all-reduce(x), replica_groups={}, to_apply=add
                                     ^^^^^^^^^^^^^^^^^
""",
    ),
    "a channel with two senders": (
        ["a.hlo@0", "b.hlo@1", "c.hlo@2"],
        {
            "a.hlo": transfers("a", send="", recv=None, header=""),
            "b.hlo": transfers("b", send="", recv=None, header=""),
            "c.hlo": transfers("c", send=None, recv="", header=""),
        },
        """b.hlo:5:3: verify: channel.sends: s (a.hlo:5:3) and s (b.hlo:5:3) on channel 1: without \
<pairs> it has one send
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a send without recv": (
        ["m.hlo"],
        {"m.hlo": transfers(recv=None)},
        """m.hlo:5:3: deadlock: no program of the run has a recv on channel 1 for s (m.hlo:5:3): \
the transfer never ends; the recv belongs on device 1
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{0,1}}"}
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a recv without send": (
        ["m.hlo"],
        {"m.hlo": transfers(send=None)},
        """m.hlo:5:3: deadlock: no program of the run has a send on channel 1 for r (m.hlo:5:3): \
the transfer never ends; the send belongs on device 0
      r = (f32[4], u32[], token[]) recv(v), channel_id=1, frontend_attributes={<pairs>="{{0,1}}"}
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a send to a program without recv": (
        ["a.hlo@0", "b.hlo@1"],
        {
            "a.hlo": transfers("a", send="", recv=None, header=""),
            "b.hlo": module("b", "  ROOT n = f32[4] negate(x)", ""),
        },
        """a.hlo:5:3: deadlock: no program of the run has a recv on channel 1 for s (a.hlo:5:3): \
the transfer never ends; the recv belongs in another program
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "send and recv of other shapes": (
        ["m.hlo"],
        {"m.hlo": transfers(shape="f32[2,2]")},
        """m.hlo:5:3: mismatch: s (m.hlo:5:3) is of f32[4], r (m.hlo:8:3) of f32[2,2], on channel 1
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{0,1}}"}
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a send to itself": (
        ["m.hlo"],
        {"m.hlo": transfers(send="{{1,1}}", recv="{{1,1}}")},
        """m.hlo:5:58: verify: channel.pairs: pair {1,1} of s: a device sends to another one
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{1,1}}"}
                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a send that two pairs begin with one source": (
        ["m.hlo"],
        {"m.hlo": transfers(send="{{0,1},{0,2}}", recv="{{0,1},{0,2}}")},
        """m.hlo:5:58: verify: channel.pairs: 0 is the source of two pairs of s
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{0,1},{0,2}}"}
                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a send to a device that doesn't exist": (
        ["m.hlo"],
        {"m.hlo": transfers(send="{{0,7}}", recv="{{0,7}}")},
        """m.hlo:5:58: verify: channel.pairs: pair {0,7} of s names 7, the ids are 0 to 3
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{0,7}}"}
                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "pairs that differ between send and recv": (
        ["m.hlo"],
        {"m.hlo": transfers(send="{{0,1}}", recv="{{0,2}}")},
        """m.hlo:5:3: deadlock: s (m.hlo:5:3) transfers from device 0 to device 1 on channel 1, but \
device 1 has no recv for it: the transfer never ends
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={<pairs>="{{0,1}}"}
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "a channel of transfers and collectives": (
        ["m.hlo"],
        {"m.hlo": transfers(last="all-reduce(x), channel_id=1, to_apply=add")},
        """m.hlo:15:34: verify: channel.kind: channel 1 carries collectives here and transfers between devices in s
      ROOT n = f32[4] all-reduce(x), channel_id=1, to_apply=add
                                     ^^^^^^^^^^^^
""",
    ),
}  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def without_label(errors: str) -> str:
    """The library's error and its notes, of what the command line prints of them."""
    assert re.match(r"(\S+:\d+:\d+: )?error: ", errors)
    return errors.replace("error: ", "", 1).replace("\n  note: ", "\n    ")


@pytest.mark.parametrize(("args", "files", "message"), BAD.values(), ids=BAD)
def test_what_cannot_communicate_is_refused(
    args: list[str], files: dict[str, str], message: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    status, printed, errors = call(capsys, "check", *args)
    assert (status, printed) == (3 if re.search(": (mismatch|deadlock): ", message) else 2, "")
    assert without_label(errors) == message.replace("<pairs>", PAIRS)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", ["a module for 8 devices, of which 4 are given", "a channel with two senders"])
def test_run_refuses_it_before_anything_starts(
    name: str, backend: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    args, files, message = BAD[name]
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    for what in ("distxla.runtime.cluster.Cluster.__init__", "distxla.oracle.lockstep.run_programs"):
        monkeypatch.setattr(what, lambda *_, **__: pytest.fail("something was started"))
    status, printed, errors = call(capsys, "run", *args, "--backend", backend)
    assert (status, printed) == (2, "")
    assert without_label(errors) == message.replace("<pairs>", PAIRS)


def test_compile_proposes_counts_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = module("m", "  ROOT s = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add", "", ADD)
    write(tmp_path, {"m.hlo": text})
    status, printed, errors = call(capsys, "compile", "--emit", "llvm", str(tmp_path / "m.hlo"))
    assert (status, printed) == (2, "")
    assert errors.endswith("note: the program's groups and pairs imply --replicas 2\n")
