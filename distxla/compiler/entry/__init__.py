"""The entry function of a program: one step of its plan after the other."""
