r"""The four validity tests of a scaffold (SCOPE-RL, "A scaffold is kept only if"), each a pure function.

| test | requirement                                         | guards against                | function              |
|------|-----------------------------------------------------|-------------------------------|-----------------------|
| V    | every sub-answer can be checked by rule             | a judge's opinion as a reward | `check_verifiable`    |
| H    | no prompt text leaks a sub-answer or the final one  | copying                       | `check_hidden`        |
| P    | every sub-question is a prerequisite of the problem | easy filler that farms reward | `check_prerequisites` |
| D    | later sub-questions depend on earlier ones          | a bag of unrelated questions  | `check_dependence`    |

Each returns None where the scaffold passes, otherwise the reason. The paper gives the requirements only; the rules are
ours. P and D stand here in their offline form, on `scaffolds.derivations`; `scaffolds.rubric` asks an endpoint.

What counts as shown (H). All sub-questions stand in one prompt, so none may show any of the answers:
- Numbers compare by value, in digits, LaTeX or words (`scaffolds.quantities`), without sign. Other answers compare as
  text, by whole words and numbers. A single letter is no leak: as a variable or an option it stands everywhere.
- What the problem states is public: a sub-question may repeat it.
- 0 and 1 are in every formula: a sub-question may show them, unless they are its own answer.
- Problems state the values 0 to 12 all the time, so such an answer may stand there. Any other sub-answer that stands in
  the problem must be computed: otherwise it can be copied.
- The final answer may stand in the problem as a quantity; the scaffold cannot change that. Given as the answer
  (`\boxed{5}`, `Answer: 5`, "the answer is 5") it is a leak.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from scope_jax.data.records import Problem
from scope_jax.scaffolds.derivations import Derivation, contains, squeeze
from scope_jax.scaffolds.quantities import stated
from scope_jax.verify import Result, Verifier, extract_answer, extract_slots
from scope_jax.verify.numbers import parse_number
from scope_jax.verify.plain import clean, plain_check

MOST_WORDS = 2  # of an answer in words: a longer one has too many wordings to compare as text
SMALL = 12  # integers up to it are unavoidable in a problem's text
UNAVOIDABLE = {Fraction(0), Fraction(1)}  # in any text
DEPENDENT_SHARE = 0.5  # of the later questions, the main one included, must depend on an earlier answer

_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{3,}|\b(?:cm|mm|km|kg|mg|ml|lb|lbs|ft|oz|am|pm|hr|mi|of|is|or|to|no|it)\b")
_IN_WORDS = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_GIVEN = re.compile(r"\banswer (?:is|=|equals)\s*:?\s*([^\n;]+?)(?:[.;?!]\s|[.?!]?\s*$)", re.IGNORECASE | re.MULTILINE)


def check_verifiable(problem: Problem, open_verifier: Callable[[], Verifier]) -> str | None:
    """V: every sub-answer survives its slot and is one that the verifier can read, in the workers' limits of time.

    Args:
      problem: with its scaffold.
      open_verifier: gives the host verifier; asked for only where an answer takes algebra to read.
    """
    for i, step in enumerate(problem.scaffold, start=1):
        reason = unverifiable(step.answer, open_verifier)
        if reason:
            return f"the answer {_shown(step.answer)} of sub-question {i} {reason}"
    return None


def unverifiable(answer: str, open_verifier: Callable[[], Verifier]) -> str | None:
    """Why no rule can check a completion against this answer; None where one can."""
    slot = extract_slots(f"[SUB-1 ANSWER] {answer}\n[MAIN ANSWER] 0", 1)[0]
    if slot is None or clean(slot) != clean(answer):
        return "does not survive its answer slot; write one bare value on one line"
    text = clean(answer)
    if parse_number(text) is not None:
        return None
    if _IN_WORDS.fullmatch(text):
        words = len(re.split("[ '-]", text))
        return None if words <= MOST_WORDS else f"is a phrase of {words} words; ask for a number or an expression"
    if _WORD.search(_COMMAND.sub(" ", text)):
        return "mixes words or units with a value; give the bare value and name the unit in the question"
    # Against a number, so that equal texts do not settle it: the verifier must read the answer itself.
    probe = "0"
    result = plain_check(probe, answer)
    if result is None:
        result = open_verifier().check_answers([probe], [answer])[0]
    if result in (Result.right, Result.wrong):
        return None
    if result is Result.timed_out:
        return "takes the verifier too long; ask for something simpler"
    return "cannot be read by the verifier; give a number or an expression in plain LaTeX"


def check_hidden(problem: Problem, steps: Sequence[Derivation]) -> str | None:
    """H: no sub-question and no problem text shows an answer, by the rules at the top of this file."""
    shown = shown_by_sub_questions(problem)
    if shown:
        return shown
    public_values, public_text = stated(problem.problem), squeeze(clean(problem.problem))
    for i, step in enumerate(problem.scaffold):
        if not (steps[i].computed or _is_small(step.answer)) and _states(public_values, public_text, step.answer):
            return f"the problem states {_shown(step.answer)}, the answer of sub-question {i + 1}, which can be copied"
    given = [extract_answer(problem.problem), *_GIVEN.findall(problem.problem)]
    if any(text is not None and plain_check(text, problem.answer) is Result.right for text in given):
        return f"the problem gives its own answer, {_shown(problem.answer)}"
    return None


def shown_by_sub_questions(problem: Problem) -> str | None:
    """The part of H that needs no work of the steps: which sub-question shows an answer that the problem does not state."""
    answers = [*(step.answer for step in problem.scaffold), problem.answer]
    public_values, public_text = stated(problem.problem), squeeze(clean(problem.problem))
    names = [*(f"sub-question {i}" for i in range(1, len(answers))), "the problem"]
    for q, step in enumerate(problem.scaffold):
        values, text = stated(step.question), squeeze(clean(step.question))
        for i, answer in enumerate(answers):
            if _states(public_values, public_text, answer) or not _states(values, text, answer):
                continue
            if i == q or _value(answer) not in UNAVOIDABLE:
                return f"sub-question {q + 1} shows {_shown(answer)}, the answer of {names[i]}"
    return None


def check_prerequisites(problem: Problem, steps: Sequence[Derivation]) -> str | None:
    """P, offline: the final answer uses every sub-answer, directly or by way of later ones."""
    needed = {len(problem.scaffold)}
    for j in reversed(range(len(problem.scaffold) + 1)):
        if j in needed:
            needed |= steps[j].uses
    for i, step in enumerate(problem.scaffold):
        if steps[i].source == "work" and not steps[i].computed:
            return f"the work of sub-question {i + 1} computes nothing: {_shown(step.answer)} is only read off"
    if steps[-1].source == "work" and not steps[-1].computed:
        return "the main work computes nothing: the last sub-question is the problem's own question; leave it out"
    for i, step in enumerate(problem.scaffold):
        if i not in needed:
            return f"no step to the final answer is seen to use {_shown(step.answer)}, sub-answer {i + 1}"
    return None


def check_dependence(problem: Problem, steps: Sequence[Derivation]) -> str | None:
    """D, offline: enough of the later questions, the main one included, use an earlier answer."""
    del problem
    return too_independent([bool(step.uses) for step in steps[1:]])


def too_independent(depends: Sequence[bool]) -> str | None:
    """Why this is a bag of unrelated questions; None where it is a chain. One flag a question from the second on.

    A solution may branch ("3 * 16, 2 * 13, then their sum"), so not every question must depend on another, but at least
    `DEPENDENT_SHARE` of them.
    """
    if sum(depends) >= DEPENDENT_SHARE * len(depends):
        return None
    return (
        f"only {sum(depends)} of the {len(depends)} questions behind the first, the main one included, depend on an "
        "earlier answer; ask for steps that build on each other"
    )


def _states(values: set[Fraction], text: str, answer: str) -> bool:
    """Whether a text, given as its values and squeezed, shows an answer."""
    value = _value(answer)
    if value is not None:
        return value in values
    plain = squeeze(clean(answer))
    return len(plain) > 1 and contains(text, plain)


def _value(answer: str) -> Fraction | None:
    number = parse_number(clean(answer))
    return None if number is None else abs(number)


def _is_small(answer: str) -> bool:
    value = _value(answer)
    return value is not None and value.denominator == 1 and value <= SMALL


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= 60 else f"{answer[:60]}...")
