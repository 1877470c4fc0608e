"""The library calls that stand in optimised HLO of XLA's GPU backend: contractions, convolutions, attention, sorts."""
