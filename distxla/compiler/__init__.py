"""The compiler: a module becomes a program for its devices, step by step (pipeline.py)."""
