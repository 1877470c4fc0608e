"""The conformance cases of collectives: small programs, their arguments, and the reference's results.

One file a kind; each has tables of rows and the function that makes cases of them. `suite.py` has all of them in order.
"""
