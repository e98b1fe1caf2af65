r"""Finds the answer in a completion's text. The device follows the same rules (`scope_jax.rewards.slots`).

| rule                | answer                                                                                         |
|---------------------|------------------------------------------------------------------------------------------------|
| main answer         | the last marker `\boxed{` or `Answer:` of the completion decides, whichever stands later       |
| `\boxed{...}`       | the text up to the brace that closes it; braces inside are counted, `\{` and `\}` are not; of  |
|                     | nested boxes, the inner one                                                                    |
| `Answer: ...`       | the text up to the end of the line                                                             |
| `[SUB-i ANSWER] ..` | the last such marker decides for slot i: text up to the end of the line or the next slot       |
|                     | marker                                                                                         |
| `[MAIN ANSWER] ...` | the same, for the main slot of a scaffolded completion                                         |
| a box inside a slot | the slot's answer is its last box                                                              |
| unfinished          | a deciding box that never closes, or a line cut by the length limit, is no answer: an earlier  |
|                     | marker never stands in for it                                                                  |
| no answer           | no marker, an unfinished one, or nothing but spaces, `$` and periods: None                     |
"""

import re

from scope_jax.verify.numbers import trim_answer

BOX, ANSWER, MAIN = "\\boxed{", "Answer:", "[MAIN ANSWER]"
_SLOT_STOP = re.compile(r"\n|\[MAIN ANSWER\]|\[SUB-[0-9]{1,2} ANSWER\]")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_answer(completion: str, *, ended: bool = True) -> str | None:
    """The completion's main answer, or None.

    Args:
      completion: the generated text, without the prompt.
      ended: False where the length limit cut it, so that its last line may be unfinished.
    """
    box, line = completion.rfind(BOX), completion.rfind(ANSWER)
    if box > line:
        return _boxed(completion, box + len(BOX))
    if line < 0:
        return None
    start = line + len(ANSWER)
    stop = completion.find("\n", start)
    if stop < 0 and not ended:
        return None
    return _given(completion[start : stop if stop >= 0 else None])


def extract_slots(completion: str, subs: int, *, ended: bool = True) -> list[str | None]:
    """Answers of slots 1 to `subs` of a scaffolded completion and, last, of its main slot; None where there is none.

    Args:
      completion: the generated text, without the prompt.
      subs: how many sub-questions the scaffold has.
      ended: False where the length limit cut it, so that its last line may be unfinished.
    """
    markers = [*(f"[SUB-{i} ANSWER]" for i in range(1, subs + 1)), MAIN]
    return [_slot(completion, marker, ended) for marker in markers]


def _slot(completion: str, marker: str, ended: bool) -> str | None:
    place = completion.rfind(marker)
    if place < 0:
        return None
    start = place + len(marker)
    stop = _SLOT_STOP.search(completion, start)
    text = completion[start : stop.start() if stop else None]
    box = text.rfind(BOX)
    if box >= 0:
        return _boxed(text, box + len(BOX))
    return _given(text) if stop or ended else None


def _boxed(text: str, start: int) -> str | None:
    """Content of the box that opens before `start`; None if it never closes."""
    depth = 1
    for brace in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return _given(text[start : brace.start()])
    return None


def _given(text: str) -> str | None:
    """The answer without what stands around it; None if nothing is left."""
    trimmed = trim_answer(text)
    if not trimmed:
        return None
    return text.strip() if "$" in trimmed else trimmed  # `$x$ or $y$` keeps its outer dollars too
