"""What a check can say."""

import enum


class Result(enum.Enum):
    """Outcome of checking one completion. Only `right` and `wrong` are verdicts on the answer itself.

    A row that ends as `unreadable_gold` or `timed_out` has no verdict: mask it out of the loss, never pay it as 0.
    """

    right = "right"
    wrong = "wrong"
    no_answer = "no_answer"  # the completion gives none: as bad as a wrong one
    unreadable_gold = "unreadable_gold"  # the reference answer cannot be read
    timed_out = "timed_out"  # no verdict within the limits of time and memory
