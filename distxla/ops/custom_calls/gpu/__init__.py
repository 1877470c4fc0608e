"""The library calls in optimised HLO of XLA's GPU backend: contractions, convolutions, attention, sorts."""
