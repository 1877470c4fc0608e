"""How many small changes of the code the tests notice.

    python3.13 -m venv /tmp/mutants && /tmp/mutants/bin/pip install cosmic-ray
    /tmp/mutants/bin/python tests/mutants/sample.py --count 150 --seed 13 /tmp/mutants.json
    .venv/bin/python -m tests.mutants /tmp/mutants.json

cosmic-ray makes the mutants; it is no dependency of the project, since only `sample.py` needs it. The same code and
seed give the same mutants. Each is written into a copy of the working tree, where the tests that belong to its module
run until one fails or all hang: first without those marked `exhaustive`, then these alone. None of them starts a
cluster.
"""
