"""Whether a sharded program is what the unsharded one is.

comparison.py, deduction.py, loops.py: test_prove.py, test_same.py
relations/arithmetic.py, relations/combining.py, relations/inference.py: test_prove.py, test_same.py
relations/indices.py: test_known_numbers.py
rules/collectives.py, rules/indexing.py: test_prove.py
rules/contractions.py, rules/elementwise.py, rules/movement.py, rules/structure.py: test_same.py, test_prove.py
"""
