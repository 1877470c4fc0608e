"""Rewrites that turn a module into the form that is executed. `step.py`: the interface of all steps of the pipeline."""
