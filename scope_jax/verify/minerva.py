r"""The reference verifier of DAPO, as one mode: `config.verifier.mode = "minerva"`.

The last `Answer:` of the completion's last 300 characters gives the answer, in any case of letters and up to the end of
its line. It is right if it equals the gold answer as text once both are normalised. Boxes, thinking and the length limit
play no part, and algebra neither: `1/2` is not `0.5`. Use it to compare with published results; the mode "math" tells
right from wrong answers better.

| rule, in this order      | example                                                                 |
|--------------------------|-------------------------------------------------------------------------|
| right side of an `=`     | `x = 5` to `5`                                                          |
| articles, spaces, `\$`   | `a 5`, `\$ 5`, `1 000` to `5`, `5`, `1000`                              |
| "and" in a list          | `x,\text{and} y` to `x,y`                                               |
| words of units           | `5 km`, `5\text{ hours}`, `90^\circ` to `5`, `5`, `90`                  |
| only what is in `$...$`  | `so $5$ then` to `5`                                                    |
| wrappers                 | `\text{Friday}`, `\textbf{A}`, `\overline{AB}`, `\boxed{5}` to their content |
| braces of `\frac`, `\sqrt` | `\frac12`, `\sqrt2` to `\frac{1}{2}`, `\sqrt{2}`                      |
| thousands commas         | `1,234,567` to `1234567`                                                |

Source: Lewkowycz et al. 2022, "Solving Quantitative Reasoning Problems with Language Models", appendix on the
evaluation of MATH, with the 300 characters, the `Answer:` pattern and the shorter list of units (no `ft`, which would
break `\left`) of Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale".
"""

import re

from scope_jax.verify.result import Result

WINDOW = 300  # characters at the end of a completion that are searched
LONGEST = 1000  # characters that are normalised; no answer is that long, and the patterns are quadratic

_ANSWER = re.compile(r"Answer\s*:\s*([^\n]+)", re.IGNORECASE)
# In order: each is removed, or replaced, wherever it stands, also inside words. That is the reference's own crudeness.
_REPLACED = {
    "an ": "",
    "a ": "",
    ".$": "$",
    "\\$": "",
    "\\ ": "",
    " ": "",
    "mbox": "text",
    ",\\text{and}": ",",
    "\\text{and}": ",",
    "\\text{m}": "\\text{}",
}
_REMOVED = (
    "square ways integers dollars mph inches hours km units \\ldots sue points feet minutes digits cents degrees cm gm "
    "pounds meters meals edges students childrentickets multiples \\text{s} \\text{.}"
).split()
_REMOVED += ["\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}", "\\mathrm{th}", "^\\circ", "^{\\circ}"]
_REMOVED += ["\\;", ",\\!", "{,}", '"', "\\dots"]
_MATH = re.compile(r".*?\$(.*?)\$.*")
_WRAPPED = [re.compile(rf"\\{name}\{{(.*?)\}}") for name in ("text", "textbf", "overline")]
_BOXED = re.compile(r"\\boxed\{(.*)\}")
_BARE_FRACTION, _BARE_ROOT = re.compile(r"frac([^{])(.)"), re.compile(r"sqrt([^{])")


def find_answer(completion: str) -> str | None:
    """The text behind the last `Answer:` near the end of the completion; None if there is none."""
    found = _ANSWER.findall(completion[-WINDOW:])
    return found[-1] if found else None


def compare(answer: str | None, gold: str) -> Result:
    """Right, wrong or no answer (None) by the rules above; a gold answer that normalises to nothing is unreadable."""
    expected = normalise(gold)
    if not expected:
        return Result.unreadable_gold
    if answer is None:
        return Result.no_answer
    return Result.right if normalise(answer) == expected else Result.wrong


def normalise(answer: str) -> str:
    """The answer by the rules of the table above; a text of more than LONGEST characters as it is."""
    if len(answer) > LONGEST:
        return answer
    answer = answer.split("=")[-1]
    for written, plain in _REPLACED.items():
        answer = answer.replace(written, plain)
    for removed in _REMOVED:
        answer = answer.replace(removed, "")
    answer = _MATH.sub(r"$\1$", answer)
    for wrapped in (*_WRAPPED, _BOXED):
        answer = wrapped.sub(r"\1", answer)
    answer = _BARE_FRACTION.sub(r"frac{\1}{\2}", answer)
    answer = _BARE_ROOT.sub(r"sqrt{\1}", answer).replace("$", "")
    if answer.replace(",", "").isdigit():
        answer = answer.replace(",", "")
    return answer.strip()
