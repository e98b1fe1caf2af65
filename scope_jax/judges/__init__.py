"""Judges: who labels the steps of a response.

| judge.kind | where                                     | cost                                                |
|------------|-------------------------------------------|-----------------------------------------------------|
| rules      | on the device, in the step                | none to speak of                                    |
| llm        | a chat endpoint, asked from the host      | a request for each right response, once in its life |
| prm        | a process reward model on the same mesh   | a forward pass over the right responses             |
"""

import pathlib
from collections.abc import Callable

import numpy as np
from jax.sharding import Mesh

from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.judges.cache import LabelCache
from scope_jax.judges.llm import Label
from scope_jax.judges.llm import make_llm_judge as make_llm_judge
from scope_jax.judges.rules import make_rule_judge
from scope_jax.rewards import TokenBytes

KINDS = ("rules", "llm", "prm")


def make_judge(config, *, table: TokenBytes, tokenizer, mesh: Mesh, workdir: str | pathlib.Path) -> Callable:
    """The judge of `config.judge`, as the stages call it (`scope.Judge`).

    Args:
      config: the whole config.
      table: bytes of the tokens; read by the rules.
      tokenizer: decodes completions for the other kinds.
      mesh: devices, for a process reward model.
      workdir: holds the cache of judgements where `judge.cache` names no folder.

    Raises:
      ValueError: a setting, the cache or the model cannot be used.
    """
    c = config.judge
    if c.kind == "rules":
        return make_rule_judge(table, c)
    split = make_split(c.max_steps)
    if c.kind == "prm":
        from scope_jax.judges.prm import make_prm_judge

        return on_host(make_prm_judge(c.model, c, mesh, split), tokenizer, c.max_steps)
    cache = LabelCache(c.cache or pathlib.Path(workdir) / "judge_cache")
    return on_host(make_llm_judge(Endpoint(settings_of(c)), c, split=split, cache=cache), tokenizer, c.max_steps)


def settings_of(judge) -> EndpointSettings:
    """The endpoint of `config.judge`."""
    return EndpointSettings(
        url=judge.url,
        model=judge.model,
        key_variable=judge.key_variable,
        timeout=judge.timeout,
        concurrency=judge.concurrency,
        retries=judge.retries,
        extra=judge.extra,
    )


def make_split(max_steps: int) -> Callable[[str], list[str]]:
    """Cuts a completion into the texts of its steps, by the segmentation that all judges share."""
    from scope_jax.rewards.segments import segment_text

    def split(completion: str) -> list[str]:
        content = completion.encode()
        return [content[start:end].decode() for start, end in segment_text(completion, max_steps=max_steps)]

    return split


def on_host(label: Label, tokenizer, max_steps: int) -> Callable:
    """A judge of texts as one of rollouts (`scope.Judge`): only right rows leave the device and are paid for."""

    def label_rows(rollout, right, problems):
        rows = np.flatnonzero(np.asarray(right()).reshape(-1) == 1)
        labels, label_mask = np.zeros((len(problems), max_steps), np.int32), np.zeros((len(problems), max_steps), bool)
        failed = np.zeros(len(problems), bool)
        if len(rows):
            tokens, mask = np.asarray(rollout.tokens), np.asarray(rollout.mask)
            completions = [tokenizer.decode(tokens[i][mask[i]], skip_special_tokens=True) for i in rows]
            asked = [problems[i] for i in rows]
            labels[rows], label_mask[rows], valid = label(
                [problem.problem for problem in asked], completions, [problem.answer for problem in asked]
            )
            failed[rows] = ~valid
        return labels, label_mask, failed

    return label_rows
