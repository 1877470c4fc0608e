"""Coverage-guided fuzzing of the readers of untrusted input: HLO text, `.npz` files, frames, cache entries.

A target (targets/) is a function of bytes. It returns, whether the bytes are right or refused with the error that the
code under test promises. Another exception, more than 10 s or more memory than LIMIT_BYTES is a finding.

    make fuzz                                   ten minutes for all targets; SECONDS=60 for one
    python -m tests.fuzz verifier --seconds 60  one target
    python -m tests.fuzz --keep                 minimise new inputs into corpus/
    python -m tests.fuzz verifier --replay FILE one input, without the fuzzer

Inputs that reach new code stay in build/fuzz/TARGET/, for the next run; findings go to fuzz-findings/. The kept ones in
corpus/ are replayed by test_corpus.py, which needs no fuzzer. Once a finding is mended its input belongs there, too,
under a name that describes it.
"""
