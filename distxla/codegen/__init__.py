"""From a scheduled module to machine code."""
