"""From problems to the arrays of a step: prompts rendered and encoded once, answers keyed once, rows taken by index."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from scope_jax.data.prompts import PromptStyle, encode_prompts, plain_prompt, prompt_ids, scaffolded_prompt, solved_turns
from scope_jax.data.records import Problem
from scope_jax.rewards import AnswerKey
from scope_jax.scope import Batch


WIDTH_UNIT = 16  # prompt widths are multiples of it


class PromptTable(NamedTuple):
    """All problems of a run, encoded; row i of every array is problem i."""

    problems: tuple[Problem, ...]
    prompts: Int[np.ndarray, "R W"]
    prompt_mask: Bool[np.ndarray, "R W"]
    scaffolded: Int[np.ndarray, "R S"]
    scaffolded_mask: Bool[np.ndarray, "R S"]
    routable: Bool[np.ndarray, "R"]
    main_key: AnswerKey
    slot_key: AnswerKey
    sub_mask: Bool[np.ndarray, "R M"]
    dropped: tuple[Problem, ...]  # their plain prompt does not fit


def encode_problems(
    problems: Sequence[Problem], tokenizer, style: PromptStyle, *, max_prompt_tokens: int, max_scaffold_tokens: int
) -> PromptTable:
    """Encodes every problem's two prompts.

    A problem whose plain prompt is longer than `max_prompt_tokens` is dropped; one whose scaffolded prompt is longer
    than `max_scaffold_tokens` stays and is never routed.

    Raises:
      ValueError: no problem is left, or the scaffolded width is the smaller one.
    """
    if max_scaffold_tokens < max_prompt_tokens:
        raise ValueError(
            f"rollout.max_scaffold_tokens={max_scaffold_tokens} is below rollout.max_prompt_tokens="
            f"{max_prompt_tokens}; a scaffolded prompt holds the plain one"
        )
    plain = [plain_prompt(problem, style) for problem in problems]
    before = solved_turns(style, scaffolded=False)
    tokens, mask, too_long = _encode(tokenizer, plain, before, max_prompt_tokens)
    if too_long.all():
        shortest = min(len(prompt_ids(tokenizer, text, before)) for text in plain)
        raise ValueError(
            f"none of the {len(problems)} prompts fits rollout.max_prompt_tokens={max_prompt_tokens}; "
            f"the shortest takes {shortest}"
        )
    kept = [problem for problem, long in zip(problems, too_long, strict=True) if not long]
    scaffolds = [scaffolded_prompt(problem, style) for problem in kept]
    before = solved_turns(style, scaffolded=True)
    encoded = _encode(tokenizer, scaffolds, before, max_scaffold_tokens, tokens.shape[1])
    scaffolded, scaffolded_mask, scaffold_too_long = encoded
    most = max(1, max(len(problem.scaffold) for problem in kept))  # one padded column where nobody has a scaffold
    has = np.array([len(problem.scaffold) for problem in kept])
    answers = [[*(sub.answer for sub in problem.scaffold), problem.answer] for problem in kept]
    return PromptTable(
        problems=tuple(kept),
        prompts=tokens[~too_long],
        prompt_mask=mask[~too_long],
        scaffolded=scaffolded,
        scaffolded_mask=scaffolded_mask,
        routable=(has > 0) & ~scaffold_too_long,
        main_key=AnswerKey.from_strings([problem.answer for problem in kept]),
        slot_key=AnswerKey.from_strings(answers, max_subs=most),
        sub_mask=np.arange(most) < has[:, None],
        dropped=tuple(problem for problem, long in zip(problems, too_long, strict=True) if long),
    )


def _encode(tokenizer, texts: list[str], before, limit: int, least: int = 0):
    """Prompt rows no wider than the longest that fits, rounded up: padding costs a prefill as much as text."""
    tokens, mask, too_long = encode_prompts(tokenizer, texts, width=limit, before=before)
    longest = int(mask.sum(axis=1).max())
    width = min(limit, max(least, -(-longest // WIDTH_UNIT) * WIDTH_UNIT))
    return tokens[:, limit - width :], mask[:, limit - width :], too_long


def take(table: PromptTable, rows: Int[np.ndarray, "P"], place: Callable[[Any], Any] = lambda tree: tree) -> Batch:
    """The batch of these problems; `place` puts its arrays on the devices."""

    def pick(tree):
        return place(jax.tree.map(lambda x: np.asarray(x)[rows], tree))

    return Batch(
        prompts=pick(table.prompts),
        prompt_mask=pick(table.prompt_mask),
        scaffolded=table.scaffolded[rows],
        scaffolded_mask=table.scaffolded_mask[rows],
        routable=table.routable[rows],
        main_key=pick(table.main_key),
        slot_key=jax.tree.map(lambda x: np.asarray(x)[rows], table.slot_key),
        sub_mask=table.sub_mask[rows],
        problems=tuple(table.problems[i] for i in rows),
    )
