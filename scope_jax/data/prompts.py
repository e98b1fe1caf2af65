"""Prompts: a problem, plain or with its scaffold, as text and as left-padded token rows.

A prompt shows sub-questions and never an answer: none is read in this file (test H of a scaffold, METHOD of the paper).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int
from transformers import PreTrainedTokenizerBase

from scope_jax.data.records import Problem, SubQuestion


@dataclasses.dataclass(frozen=True)
class Example:
    """A solved problem that stands before the one to solve, as earlier turns of the chat."""

    problem: Problem
    plain: str  # reply to its plain prompt
    scaffolded: str  # reply to its scaffolded prompt


@dataclasses.dataclass(frozen=True)
class PromptStyle:
    """The words around a problem. An empty text is left out, its blank line too.

    In `slots`, `{slots}` stands for the list of answer slots.
    """

    plain: str = ""  # after the problem: how to give the answer
    scaffold: str = ""  # between the problem and its numbered sub-questions
    slots: str = ""  # after the sub-questions: where each answer goes
    examples: tuple[Example, ...] = ()


MATH = PromptStyle(
    plain="Solve the problem in clear steps, with a blank line after each. Put the final answer in \\boxed{}.",
    scaffold="First answer these sub-questions in order; later ones build on earlier ones.",
    slots=(
        "Solve them in clear steps, with a blank line after each, and then the problem itself. Write every answer, "
        "as soon as you have it, on a line of its own that begins with its slot:\n{slots}"
    ),
)
BARE = PromptStyle()  # the embedded task: a tiny model pays for every token, and the numbered list says enough
# For models of some hundred million parameters, which follow an example and not an instruction.
EXAMPLES = PromptStyle(
    examples=(
        Example(
            Problem(
                id="pens",
                problem="Tom has 3 boxes of 4 pens. He gives 5 pens away and sells the rest for $2 each. How many dollars does he get?",
                answer="14",
                scaffold=(SubQuestion("How many pens does Tom have?", "12"), SubQuestion("How many pens are left?", "7")),
            ),
            plain="Tom has 3*4=12 pens.\n\nHe has 12-5=7 pens left.\n\nHe gets 7*2=14 dollars.\nAnswer: 14",
            scaffolded=(
                "1. Tom has 3*4=12 pens.\n[SUB-1 ANSWER] 12\n2. He has 12-5=7 pens left.\n[SUB-2 ANSWER] 7\n"
                "He gets 7*2=14 dollars.\n[MAIN ANSWER] 14"
            ),
        ),
        Example(
            Problem(
                id="hats",
                problem="A shirt costs $30 and a hat costs half as much. What do 4 hats cost?",
                answer="60",
                scaffold=(SubQuestion("What does a hat cost?", "15"),),
            ),
            plain="A hat costs 30/2=15 dollars.\n\n4 hats cost 15*4=60 dollars.\nAnswer: 60",
            scaffolded="1. A hat costs 30/2=15 dollars.\n[SUB-1 ANSWER] 15\n4 hats cost 15*4=60 dollars.\n[MAIN ANSWER] 60",
        ),
    )
)
STYLES = {"math": MATH, "bare": BARE, "examples": EXAMPLES}


def plain_prompt(problem: Problem, style: PromptStyle = MATH) -> str:
    """The original prompt of a problem."""
    return _join("\n\n", problem.problem, style.plain)


def scaffolded_prompt(problem: Problem, style: PromptStyle = MATH) -> str:
    """The problem, its numbered sub-questions and the slots their answers go to: one generation answers them all.

    A problem without a scaffold keeps its plain prompt, as its reward stays the outcome (R_ASR with m = 0).
    """
    if not problem.scaffold:
        return plain_prompt(problem, style)
    questions = "\n".join(f"{i}. {step.question.strip()}" for i, step in enumerate(problem.scaffold, start=1))
    slots = [f"[SUB-{i} ANSWER] answer to sub-question {i}" for i in range(1, len(problem.scaffold) + 1)]
    slots.append("[MAIN ANSWER] answer to the problem")
    # Replaced, not formatted: braces of LaTeX in a style's own words stay as they are.
    ending = style.slots.replace("{slots}", "\n".join(slots))
    listed = _join("\n", style.scaffold, questions)
    gap = "\n\n" if style.scaffold else "\n"
    return _join("\n\n", f"{problem.problem}{gap}{listed}", ending)


def solved_turns(style: PromptStyle, *, scaffolded: bool) -> tuple[tuple[str, str], ...]:
    """Prompt and reply of each example of a style."""
    if scaffolded:
        return tuple((scaffolded_prompt(e.problem, style), e.scaffolded) for e in style.examples)
    return tuple((plain_prompt(e.problem, style), e.plain) for e in style.examples)


def render_chat(tokenizer: PreTrainedTokenizerBase, prompt: str, before: Sequence[tuple[str, str]] = ()) -> str:
    """The prompt as the last user turn of the tokenizer's chat template, ready for the reply, thinking switched off.

    Args:
      tokenizer: of a chat model.
      prompt: the user's words.
      before: earlier turns, prompt and reply, as `solved_turns` gives them.

    Raises:
      ValueError: the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no chat template; use a chat model's tokenizer")
    turns = [{"role": role, "content": text} for pair in before for role, text in zip(("user", "assistant"), pair, strict=True)]
    turns.append({"role": "user", "content": prompt})
    # Qwen3's template answers enable_thinking=False with an empty think block; templates without the switch ignore it.
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, enable_thinking=False)


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, before: Sequence[tuple[str, str]] = ()) -> list[int]:
    """Token ids of a prompt in the chat template, behind earlier turns."""
    # The template has written every special token that the model wants; a tokenizer must not add its own.
    return tokenizer(render_chat(tokenizer, prompt, before), add_special_tokens=False)["input_ids"]


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], *, width: int, before: Sequence[tuple[str, str]] = ()
) -> tuple[Int[np.ndarray, "P W"], Bool[np.ndarray, "P W"], Bool[np.ndarray, "P"]]:
    """Token rows of prompts in the chat template, padded on the left to `width` (W), each behind the same earlier turns.

    A prompt that does not fit is never cut: its row is all padding and flagged, and must not be sampled from.

    Returns:
      tokens int32 [P W], mask [P W] True on real tokens, too_long [P].
    """
    pad = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    tokens = np.full((len(prompts), width), pad, np.int32)
    mask = np.zeros((len(prompts), width), bool)
    too_long = np.zeros(len(prompts), bool)
    for row, prompt in enumerate(prompts):
        ids = prompt_ids(tokenizer, prompt, before)
        if len(ids) > width:
            too_long[row] = True
        else:
            tokens[row, width - len(ids) :] = ids
            mask[row, width - len(ids) :] = True
    return tokens, mask, too_long


def _join(gap: str, *parts: str) -> str:
    return gap.join(part for part in parts if part)
