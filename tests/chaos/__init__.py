"""Real processes that are killed, stopped and interrupted at random moments: `make chaos`, or `python -m tests.chaos`.

runner.py starts drivers (driver.py) and signals their processes as plan.py draws, process_runner.py several JAX
processes (process_member.py); judgement.py says whether a case ended right: the right error in time, or the right
results, nothing left behind, and the same bits in the next run.
"""
