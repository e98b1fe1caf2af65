"""A process reward model as judge: Qwen2.5-Math-PRM's layout, as a forward pass over the mesh of the policy.

The response's steps are each followed by a separator token; a two-layer head on the hidden state of a separator gives
the probability that the step before it is right. Source: Zhang et al. 2025, "The Lessons of Developing Process Reward
Models in Mathematical Reasoning" (arXiv 2501.07301), and the model card of Qwen2.5-Math-PRM-7B. The labels made of the
probabilities are ours.
"""

import functools
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int
from transformers import PreTrainedTokenizerBase

from scope_jax import qwen3
from scope_jax.meshes import batch_sharding, batch_shards
from scope_jax.qwen3.config import REWARD_CLASSES, REWARD_MODEL, Config
from scope_jax.qwen3.forward import causal_mask, hidden_states, segment_positions
from scope_jax.qwen3.params import Params
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rewards import STEP_LABELS

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
SEPARATOR = "<extra_0>"  # behind each step
RIGHT = 1  # class of a right step
NARROWEST = 128  # tokens; a batch is this wide, or twice as wide, or four times, ...: one program each

# label(prompts, completions, answers) -> labels, mask, valid
Label = Callable[[Sequence[str], Sequence[str], Sequence[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]


def load_prm(
    folder: str | pathlib.Path, *, mesh: Mesh | None = None, dtype: str | jnp.dtype | None = None
) -> tuple[Config, Params]:
    """Reads a process reward model's folder; the head is the entry "reward" of the parameters.

    Args, and errors beyond these: see `qwen3.load`. A left-over `lm_head.weight` is not read.

    Raises:
      ValueError: the folder holds another kind of model.
    """
    if not Config.from_hf(folder).reward_classes:
        raise ValueError(f"{folder}/config.json: field architectures does not name {REWARD_MODEL}; a judge needs one")
    return qwen3.load(folder, mesh=mesh, dtype=dtype)


def step_probabilities(
    params: Params,
    config: Config,
    tokens: Int[Array, "B T"],
    positions: Int[Array, "B T"] | None,
    segment_ids: Int[Array, "B T"],
    separator_id: int,
    *,
    max_steps: int,
) -> tuple[Float[Array, "B N"], Bool[Array, "B N"]]:
    """Probability that each step is right: softmax of the head at the separators, of the class `RIGHT`.

    Call it under `jit` with `config` and `max_steps` static. The head runs on the separators' columns alone.

    Args:
      params: the reward model's parameters.
      config: its architecture.
      tokens: conversations, each step with a separator behind it.
      positions: rotary positions; counted inside each segment when None.
      segment_ids: 0 is padding, each other id a conversation of its own.
      separator_id: token id of `SEPARATOR`.
      max_steps: width N of the result; separators past it are left out.

    Returns:
      Probabilities in float32, 0 where there is no step, and the mask of steps: those of a row in order.
    """
    positions = segment_positions(segment_ids) if positions is None else positions
    hidden, _ = hidden_states(params, config, tokens, positions, causal_mask(segment_ids))
    seen = jnp.cumsum((tokens == separator_id) & (segment_ids > 0), axis=1)
    wanted = jnp.arange(1, max_steps + 1)
    columns = jax.vmap(lambda row: jnp.searchsorted(row, wanted, side="left"))(seen)
    mask = wanted <= seen[:, -1:]
    hidden = jnp.take_along_axis(hidden, jnp.where(mask, columns, 0)[..., None], axis=1)

    w = jax.tree.map(lambda p: p.astype(hidden.dtype), params["reward"])
    inner = jax.nn.relu(jnp.einsum("bnd,de->bne", hidden, w["inner"]) + w["inner_bias"])
    logits = jnp.einsum("bne,ec->bnc", inner, w["outer"], preferred_element_type=jnp.float32) + w["outer_bias"]
    return jnp.where(mask, jax.nn.softmax(logits.astype(jnp.float32))[..., RIGHT], 0.0), mask


def labels_from_probabilities(
    probabilities: Float[np.ndarray, "B N"],
    mask: Bool[np.ndarray, "B N"],
    *,
    error_below: float,
    useful_from: float,
) -> Int[np.ndarray, "B N"]:
    """Step labels of a reward model's probabilities (ours): `error` below one threshold, `useful` from the other on.

    A step between them is `mechanical`: not wrong, and not clearly a step ahead. `redundant` and `reversion` never
    come from a reward model, which sees whether a step is right and not whether it was needed.

    Returns:
      Indices into `STEP_LABELS`, 0 where `mask` is False.

    Raises:
      ValueError: the thresholds are not in order.
    """
    if error_below > useful_from:
        raise ValueError(f"error_below={error_below} is above useful_from={useful_from}")
    error, mechanical, useful = (STEP_LABELS.index(name) for name in ("error", "mechanical", "useful"))
    labels = np.select([probabilities < error_below, probabilities < useful_from], [error, mechanical], useful)
    return np.where(mask, labels, 0).astype(np.int32)


def conversation_ids(tokenizer: PreTrainedTokenizerBase, problem: str, steps: Sequence[str]) -> list[int] | None:
    """Token ids of a problem and the steps of its response, in the format the model was trained on.

    Returns:
      None where a text spells a control token, such as the separator: the steps could not be told apart.
    """
    controls = {SEPARATOR, *(token.content for token in tokenizer.added_tokens_decoder.values() if token.special)}
    if any(token in text for token in controls for text in (problem, *steps)):
        return None
    turns = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": problem},
        {"role": "assistant", "content": "".join(step + SEPARATOR for step in steps)},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def find_separator(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the step separator.

    Raises:
      ValueError: the tokenizer has no such token.
    """
    ids = tokenizer(SEPARATOR, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ValueError(f"{tokenizer.name_or_path}: the tokenizer has no token {SEPARATOR}; it is no reward model's")
    return ids[0]


def make_prm_judge(
    folder: str | pathlib.Path,
    judge,
    mesh: Mesh,
    split: Callable[[str], list[str]],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Label:
    """A judge whose labels come from the process reward model of `folder`, laid out over `mesh`.

    The judge is `label(prompts, completions, answers) -> labels [B N], mask [B N], valid [B]`, where prompts are the
    problems' texts and answers are not read. `valid` is False where there is no telling: the conversation is longer
    than the model's context, a text spells a control token, or a probability is not a number. Such a row's mask is all
    False. With several processes all must call it with the same rows.

    Args:
      folder: Hugging Face folder with the model and its tokenizer.
      judge: `config.judge`; reads `max_steps` (N), `prm_error_below`, `prm_useful_from` and `prm_batch_tokens`.
      mesh: the devices.
      split: the texts of a completion's steps, at most `max_steps`.
      tokenizer: the model's; read from `folder` when None.

    Raises:
      FileNotFoundError, ValueError: the folder does not hold a process reward model and its tokenizer.
    """
    tokenizer = load_tokenizer(folder) if tokenizer is None else tokenizer
    separator_id = find_separator(tokenizer)
    config, params = load_prm(folder, mesh=mesh)
    run = jax.jit(
        functools.partial(step_probabilities, config=config, positions=None, max_steps=judge.max_steps),
        out_shardings=NamedSharding(mesh, PartitionSpec()),  # every process reads all rows
    )

    def label(prompts, completions, answers):
        del answers
        steps = [split(completion) for completion in completions]
        most = max(map(len, steps), default=0)
        if most > judge.max_steps:
            raise ValueError(f"a completion was split into {most} steps; judge.max_steps={judge.max_steps}")
        rows = [conversation_ids(tokenizer, *pair) for pair in zip(prompts, steps, strict=True)]
        valid = np.array([ids is not None and len(ids) <= config.max_positions for ids in rows], bool)
        probabilities = np.zeros((len(rows), judge.max_steps), np.float32)
        asked = [i for i in np.flatnonzero(valid) if steps[i]]  # what has no steps needs no labels
        for batch, tokens, segment_ids in _batches(rows, asked, config, judge.prm_batch_tokens, batch_shards(mesh)):
            placed = jax.device_put((tokens, segment_ids), batch_sharding(mesh))
            found, _ = run(params, tokens=placed[0], segment_ids=placed[1], separator_id=separator_id)
            probabilities[batch] = np.asarray(found)[: len(batch)]
        valid &= np.isfinite(probabilities).all(axis=1)
        mask = np.arange(judge.max_steps) < np.array([len(texts) for texts in steps], int)[:, None]
        mask &= valid[:, None]
        thresholds = {"error_below": judge.prm_error_below, "useful_from": judge.prm_useful_from}
        return labels_from_probabilities(probabilities, mask, **thresholds), mask, valid

    return label


def _batches(rows: list[list[int]], asked: list[int], config: Config, batch_tokens: int, shards: int):
    """Batches of rows of like length: (indices, tokens, segment ids), in one of few shapes, padded on the right."""
    left = sorted(asked, key=lambda i: -len(rows[i]))
    while left:
        width = min(NARROWEST << max(0, (len(rows[left[0]]) - 1) // NARROWEST).bit_length(), config.max_positions)
        size = max(batch_tokens // width // shards, 1) * shards
        small = max(size // 4 // shards, 1) * shards
        size = small if len(left) <= small else size
        batch, left = left[:size], left[size:]
        tokens = np.full((size, width), config.pad_id, np.int32)
        segment_ids = np.zeros((size, width), np.int32)
        for row, i in enumerate(batch):
            tokens[row, : len(rows[i])], segment_ids[row, : len(rows[i])] = rows[i], 1
        yield batch, tokens, segment_ids
