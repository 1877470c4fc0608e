"""XlaBuilder.

accepted_values.py: test_errors.py, test_lowering.py
collectives.py: test_lowering.py
control_flow.py, recorder.py: test_lowering.py, test_transfers.py, test_errors.py
contractions.py, numerics.py: test_examples.py (examples_numerics.py)
data_movement.py: test_examples.py (examples_data_movement.py)
elementwise_binary.py, elementwise_unary.py: test_examples.py (examples_elementwise.py)
indexing.py, windows.py: test_examples.py (examples_data_movement.py, examples_computations.py, examples_numerics.py)
"""
