"""Prompts: a problem, plain or with its scaffold, as text and as left-padded token rows.

A prompt shows sub-questions and never an answer: none is read in this file (test H of a scaffold, METHOD of the paper).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int
from transformers import PreTrainedTokenizerBase

from scope_jax.data.records import Problem


@dataclasses.dataclass(frozen=True)
class PromptStyle:
    """The words around a problem. An empty text is left out, its blank line too.

    In `slots`, `{slots}` stands for the list of answer slots.
    """

    plain: str = ""  # after the problem: how to give the answer
    scaffold: str = ""  # between the problem and its numbered sub-questions
    slots: str = ""  # after the sub-questions: where each answer goes


MATH = PromptStyle(
    plain="Solve the problem in clear steps, with a blank line after each. Put the final answer in \\boxed{}.",
    scaffold="First answer these sub-questions in order; later ones build on earlier ones.",
    slots=(
        "Solve them in clear steps, with a blank line after each, and then the problem itself. Write every answer, "
        "as soon as you have it, on a line of its own that begins with its slot:\n{slots}"
    ),
)
BARE = PromptStyle()  # the embedded task: a tiny model pays for every token, and the numbered list says enough
STYLES = {"math": MATH, "bare": BARE}


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


def render_chat(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    """The prompt as one user turn of the tokenizer's chat template, ready for the reply, thinking switched off.

    Raises:
      ValueError: the tokenizer has no chat template.
    """
    if not tokenizer.chat_template:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no chat template; use a chat model's tokenizer")
    turn = [{"role": "user", "content": prompt}]
    # Qwen3's template answers enable_thinking=False with an empty think block; templates without the switch ignore it.
    return tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True, enable_thinking=False)


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of a prompt in the chat template."""
    # The template has written every special token that the model wants; a tokenizer must not add its own.
    return tokenizer(render_chat(tokenizer, prompt), add_special_tokens=False)["input_ids"]


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], *, width: int
) -> tuple[Int[np.ndarray, "P W"], Bool[np.ndarray, "P W"], Bool[np.ndarray, "P"]]:
    """Token rows of prompts in the chat template, padded on the left to `width` (W).

    A prompt that does not fit is never cut: its row is all padding and flagged, and must not be sampled from.

    Returns:
      tokens int32 [P W], mask [P W] True on real tokens, too_long [P].
    """
    pad = 0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    tokens = np.full((len(prompts), width), pad, np.int32)
    mask = np.zeros((len(prompts), width), bool)
    too_long = np.zeros(len(prompts), bool)
    for row, prompt in enumerate(prompts):
        ids = prompt_ids(tokenizer, prompt)
        if len(ids) > width:
            too_long[row] = True
        else:
            tokens[row, width - len(ids) :] = ids
            mask[row, width - len(ids) :] = True
    return tokens, mask, too_long


def _join(gap: str, *parts: str) -> str:
    return gap.join(part for part in parts if part)
