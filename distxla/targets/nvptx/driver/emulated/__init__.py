"""A library with the functions of the driver's C interface whose GPU is this processor. For tests: it hides no mistake.

Nothing that is put into a queue happens before a synchronisation needs it, so that a missing one leaves old bytes.
Memory of the GPU is in memory files, at addresses that this process can't access but while kernels run: host code that
dereferences one ends by a fault. Copies check that they stay within one allocation. Freed memory, and memory of a
process that has ended, is refused, and its addresses are never used again. After a kernel's fault the context is lost,
as on a GPU. Functions that need a context of the thread fail where none was set.
"""
