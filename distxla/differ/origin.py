"""Where wrong values begin: from a result that differs back to the first array that goes wrong."""

from __future__ import annotations

from distxla.differ.alignment import ArrayPair, Twins
from distxla.differ.ancestry import Ancestry
from distxla.differ.causes import CERTAIN, OTHERS, Finding, named, returned, unexplained
from distxla.differ.recording import Recorded
from distxla.lazy_dataclass import replace


class Origin:
    """twins: all arrays of both runs."""

    def __init__(self, twins: Twins) -> None:
        self._twins, self._ancestry = twins, Ancestry(twins)

    def find(self, result: Recorded) -> Finding:
        """result: the array of the sharded run that is a result and differs."""
        found = self._found(self._twins.pairs[result.number])
        if found.line is None:
            found = replace(found, line=self._ancestry.nearest_line(found.at))
        use = (found.use or found.at).array
        last = use.iterations[-1] if use.iterations else 0
        if last == 0 or not self._was_right(use):
            return found
        right = "iteration 0" if last == 1 else f"iterations 0 to {last - 1}"
        return replace(found, hint=f"{found.hint}; in {right} {named(use)} is right")

    def _was_right(self, array: Recorded) -> bool:
        """Whether the instruction's arrays of all iterations before are right."""
        outer, last = array.iterations[:-1], array.iterations[-1]
        return all(
            pair.is_right
            for pair in self._twins.pairs[: array.number]
            if pair.array.instruction is array.instruction
            and (pair.array.leaf, pair.array.iterations[:-1]) == (array.leaf, outer)
            and pair.array.iterations[-1] < last
        )

    def _found(self, result: ArrayPair) -> Finding:
        if result.relation is not None:
            return returned(self._ancestry, result, result.relation)
        wrong = self._first_wrong(result)
        pair = wrong[0]
        for each in wrong[:1] if pair.by == "name" else wrong:
            for cause in CERTAIN:
                found = cause(self._ancestry, each)
                if found is not None:
                    return found
        for cause in OTHERS:
            found = cause(self._ancestry, pair)
            if found is not None:
                return found
        return unexplained(self._ancestry, pair)

    def _first_wrong(self, result: ArrayPair) -> list[ArrayPair]:
        """The arrays on ways of wrong ones to the result; first the one that is wrong while all that it is made of, as
        far as it has a twin, is right, then the others in order."""
        pairs = self._twins.pairs
        found = sorted(self._ancestry.wrong_before(result.array.number))
        wrong, has_cause = set(found), set()  # has_cause: made of a wrong one with a twin, however indirectly
        for number in found:  # in order: what an array is made of comes before it
            before = [n for n in pairs[number].array.made_of if n in wrong]
            if any(pairs[n].twin is not None or n in has_cause for n in before):
                has_cause.add(number)
            elif pairs[number].twin is not None:
                return [pairs[number], *(pairs[n] for n in found if n > number)]
        of_arguments = [n for n in found if self._twins.depends_on_arguments[n]]
        return [pairs[n] for n in of_arguments or found]
