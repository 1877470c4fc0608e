"""Rules by which the relation of an instruction's result follows from those of its operands: one file a subject."""
