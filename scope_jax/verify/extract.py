r"""Finds the answer in a completion's text. The device follows the same rules (`scope_jax.rewards.slots`).

| rule                | answer                                                                                         |
|---------------------|------------------------------------------------------------------------------------------------|
| thinking            | only text after the last `</think>` counts; a `<think>` behind it, so one that never closes,   |
|                     | leaves no answer                                                                               |
| main answer         | the last marker, `\boxed{` or `Answer:`, decides, whichever stands later; with `box="first"`   |
|                     | the first box, and an `Answer:` line only where there is no box                                |
| `\boxed{...}`       | the text up to the brace that closes it; braces inside are counted, `\{` and `\}` are not; of  |
|                     | nested boxes, the inner one; `\boxed {...}` is the same                                        |
| `Answer: ...`       | the text up to the end of the line, without the asterisks of bold type around it;              |
|                     | `**Answer**: ...` is the same                                                                  |
| `[SUB-i ANSWER] ..` | the last such marker decides for slot i: text up to the end of the line or the next slot       |
|                     | marker, without asterisks around it                                                            |
| `[MAIN ANSWER] ...` | the same, for the main slot of a scaffolded completion                                         |
| a box inside a slot | the slot's answer is its last box; with `box="first"` its first                                |
| unfinished          | a deciding box that never closes, or a line cut by the length limit, is no answer: an earlier  |
|                     | marker never stands in for it                                                                  |
| no answer           | no marker, an unfinished one, or nothing but spaces, `$` and periods: as bad as a wrong one    |

A completion that begins inside a thought, because the chat template opened `<think>` in the prompt, has no `<think>` of
its own: cut before `</think>`, it is read like any other text. Qwen3's template opens none.
"""

import re
from typing import Literal

from scope_jax.verify.numbers import trim_answer

BOXES, LINES, MAIN = ("\\boxed{", "\\boxed {"), ("Answer:", "Answer**:"), "[MAIN ANSWER]"
Box = Literal["last", "first"]

_BOLD = " \t\r*"  # around an answer in markdown bold
_SLOT_STOP = re.compile(r"\n|\[MAIN ANSWER\]|\[SUB-[0-9]{1,2} ANSWER\]")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_answer(completion: str, *, ended: bool = True, box: Box = "last") -> str | None:
    """The completion's main answer, or None.

    Args:
      completion: the generated text, without the prompt.
      ended: False where the length limit cut it, so that its last line may be unfinished.
      box: which of several boxes counts.
    """
    text = _after_thinking(completion)
    boxed, line = _content(text, BOXES, box), _content(text, LINES, "last")
    if boxed > line or (box == "first" and boxed >= 0):
        return _boxed(text, boxed)
    if line < 0:
        return None
    stop = text.find("\n", line)
    if stop < 0 and not ended:
        return None
    return _plain(text[line : stop if stop >= 0 else None])


def extract_slots(completion: str, subs: int, *, ended: bool = True, box: Box = "last") -> list[str | None]:
    """Answers of slots 1 to `subs` of a scaffolded completion and, last, of its main slot; None where there is none.

    Args:
      completion: the generated text, without the prompt.
      subs: how many sub-questions the scaffold has.
      ended: False where the length limit cut it, so that its last line may be unfinished.
      box: which of several boxes in a slot counts.
    """
    text = _after_thinking(completion)
    markers = [*(f"[SUB-{i} ANSWER]" for i in range(1, subs + 1)), MAIN]
    return [_slot(text, marker, ended, box) for marker in markers]


def _after_thinking(completion: str) -> str:
    """The text that counts: empty where the thinking never ends."""
    text = completion.rpartition("</think>")[2]
    return "" if "<think>" in text else text


def _slot(text: str, marker: str, ended: bool, box: Box) -> str | None:
    place = text.rfind(marker)
    if place < 0:
        return None
    start = place + len(marker)
    stop = _SLOT_STOP.search(text, start)
    text = text[start : stop.start() if stop else None]
    boxed = _content(text, BOXES, box)
    if boxed >= 0:
        return _boxed(text, boxed)
    return _plain(text) if stop or ended else None


def _content(text: str, markers: tuple[str, ...], which: Box) -> int:
    """Place just past the last, or the first, of the markers; -1 where none stands."""
    find = text.rfind if which == "last" else text.find
    ends = [place + len(marker) for marker in markers if (place := find(marker)) >= 0]
    return (max if which == "last" else min)(ends, default=-1)


def _boxed(text: str, start: int) -> str | None:
    """Content of the box that opens before `start`, or of the last one nested in it; None if it never closes."""
    depth = 1
    for brace in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            content = text[start : brace.start()]
            nested = _content(content, BOXES, "last")
            return _given(content) if nested < 0 else _boxed(content, nested)
    return None


def _plain(text: str) -> str | None:
    """The answer of a line or of a slot without a box."""
    return _given(text.strip(_BOLD).rstrip(_BOLD + "."))


def _given(text: str) -> str | None:
    """The answer without what stands around it; None if nothing is left."""
    trimmed = trim_answer(text)
    if not trimmed:
        return None
    return text.strip() if "$" in trimmed else trimmed  # `$x$ or $y$` keeps its outer dollars too
