"""The text of modules.

attributes.py, groups.py, header.py, operands.py: test_grammar.py, test_round_trip.py
"""
