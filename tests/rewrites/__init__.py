"""What turns a module into the form that is executed.

driver_steps.py: test_driver_steps.py, tests/runtime/arrays/test_host_calls.py
reduction_order.py: tests/collectives/test_reduction_orders.py
executed_form.py: tests/compiler/test_executed_form.py
step.py: tests/compiler/test_pipeline.py
"""
