"""Further programs that deadlock: two devices that contradict each other, and channels that only their pairs join."""

from __future__ import annotations

from tests.deadlock_programs import GOT, SCHEDULED, Case, alone, by_device, recv, recv_done, reduce, send, send_done

BOTH_WAYS = "{{0,1},{1,0}}"
HALVES = ["sa = f32[4] all-reduce-start(p), replica_groups={{0,1}}, to_apply=sum", "da = f32[4] all-reduce-done(sa)"]

CASES = [
    Case(
        "members_in_another_order",
        2,
        ((range(2), by_device(reduce("ROOT c", "p", "{{0,1}}"), reduce("ROOT d", "p", "{{1,0}}"))),),
    ),
    Case(
        "halves_and_a_whole_round_in_different_orders",
        2,
        (
            (
                range(2),
                SCHEDULED
                + by_device(
                    "\n".join([*HALVES, reduce("ROOT c", "da", "{{1,0}}")]),
                    "\n".join([reduce("c", "p", "{{1,0}}"), *HALVES, "ROOT r = f32[4] add(c, da)"]),
                ),
            ),
        ),
    ),
    Case(
        "joined_channels",
        2,
        (
            (
                range(2),
                SCHEDULED
                + alone(
                    "\n".join(
                        [
                            recv("c", 2, BOTH_WAYS),
                            recv_done("rd", "c", 2),
                            send("s", 1, BOTH_WAYS),
                            send_done("sd", "s", 1),
                            GOT,
                        ]
                    )
                ),
            ),
        ),
    ),
]
