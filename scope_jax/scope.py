"""SCOPE-RL's two stages, in the paper's order: what is sampled, what it is paid, what the update sees.

    Stage 1, ASR:  y ~ pi(.|q);  rbar = mean_g r_out(y_g);  where rbar < tau, y' ~ pi(.|scaffold(q)) replaces y
                   R = R_ASR(y') on the scaffold, r_out(y) elsewhere
    Stage 2, QPR:  y ~ pi(.|q);  R = R_QPR(y): 0 where wrong, else the quality of the process
    either way:    A_g = (R_g - mean R) / (std R + eps), and one policy update

Source: SCOPE-RL, arXiv 2607.11506. Outcome-only GRPO and the ablations are configs of these same functions.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from scope_jax import rewards
from scope_jax.data.records import Problem
from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Params
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG, AnswerKey, TokenBytes
from scope_jax.rollout import Rollout, generate


class Policy(NamedTuple):
    """What sampling and scoring read, and where their arrays go."""

    params: Params
    model: Config
    table: TokenBytes
    place: Callable[[Any], Any] = lambda tree: tree  # lays rows out over the device mesh
    shards: int = 1  # parts that it cuts the rows into


class Sampling(NamedTuple):
    """How completions are drawn; see `rollout.generate`."""

    group: int  # completions a prompt
    max_new_tokens: int
    temperature: float
    top_k: int = 0
    top_p: float = 1.0

    @classmethod
    def of(cls, c) -> "Sampling":
        """The sampling of `config.rollout`."""
        return cls(c.group, c.max_new_tokens, c.temperature, c.top_k, c.top_p)


class Batch(NamedTuple):
    """P problems of one step: both prompts of each, and the answers in the form the kernels read."""

    prompts: Int[Array, "P W"]
    prompt_mask: Bool[Array, "P W"]
    main_key: AnswerKey  # one answer a problem
    # The rest stays on the host until it is known which problems are routed.
    scaffolded: Int[np.ndarray, "P S"]  # S >= W
    scaffolded_mask: Bool[np.ndarray, "P S"]
    routable: Bool[np.ndarray, "P"]  # the problem has a scaffold and its prompt fits
    slot_key: AnswerKey  # M + 1 answers a problem, the main one last
    sub_mask: Bool[np.ndarray, "P M"]  # the sub-questions that a problem has
    problems: tuple[Problem, ...]


@flax.struct.dataclass
class Experience:
    """P * G rollouts and what they are paid: all that an update and a log need."""

    rollout: Rollout
    rewards: Float[Array, "P G"]
    valid: Bool[Array, "P G"]  # False where the verdict is still undecided: out of its group, never paid as 0
    outcome: Float[Array, "P G"]  # r_out on the original prompts
    routed: Bool[Array, "P"]  # scaffolded rollouts have replaced the original ones
    labels: tuple[Int[Array, "B N"], Bool[Array, "B N"]] | None  # step labels and their mask, where the stage pays them
    sampled_tokens: Int[Array, ""]  # the replaced rollouts' tokens included
    judge_failed: Bool[Array, "B"] | None = None  # right rows without labels, paid their outcome; None: cannot be
    # Answers that the host checked, by `verify.Result` name, and all (`checked`).
    checks: dict[str, Int[Array, ""]] = flax.struct.field(default_factory=dict)


# Settles what the device left undecided: (rollout, verdicts, the problem of each row, None for nobody's) -> a function
# that waits for the host and gives the verdicts and `Experience.checks`. One column: the main answer; more: the slots of
# a scaffold, main answer last.
Settle = Callable[
    [Rollout, Int8[np.ndarray, "B C"], Sequence[Problem | None]],
    Callable[[], tuple[Int8[np.ndarray, "B C"], dict[str, np.int32]]],
]

# Labels steps: (rollout, a function that waits for and gives 1 or True where a row is right, the problem of each row) ->
# (labels, mask of real steps, right rows that it could not label; None where that cannot happen). It need not label other
# rows. See `judges.make_judge`.
Judge = Callable[
    [Rollout, Callable[[], Float[Array, "P G"]], Sequence[Problem]],
    tuple[Int[Array, "B N"], Bool[Array, "B N"], Bool[Array, "B"] | None],
]


def asr_stage(policy: Policy, batch: Batch, key: PRNGKeyArray, config, settle: Settle, judge: Judge) -> Experience:
    """Stage 1: problems that the policy still fails are tried again on their scaffold and paid by prefix.

    Routing follows this very policy, so that a problem leaves its scaffold once the policy outgrows it. The scaffolded
    rollouts replace the original ones (the paper's Appendix J), so the update's batch keeps its size.
    """
    first, second = jax.random.split(key)
    plain = outcome_stage(policy, batch, first, config, settle, judge)
    routed = _routed(plain, batch, config)
    return _replace_by_scaffolded(policy, batch, plain, routed, second, config, settle)


def qpr_stage(policy: Policy, batch: Batch, key: PRNGKeyArray, config, settle: Settle, judge: Judge) -> Experience:
    """Stage 2: right responses are paid by the shape of their process, wrong ones nothing."""
    rollout, finish = _attempt(policy, batch, key, config, settle)
    # A judge on the device labels while the host still checks answers; any other waits for what is right.
    labelled = _labels(rollout, lambda: finish().outcome, batch, config, judge)
    return _pay_process(finish(), *labelled, config=config)


def outcome_stage(policy: Policy, batch: Batch, key: PRNGKeyArray, config, settle: Settle, judge: Judge) -> Experience:
    """Outcome-only reward: the baseline, and the first half of either stage."""
    _, finish = _attempt(policy, batch, key, config, settle)
    return finish()


def mixed_stage(policy: Policy, batch: Batch, key: PRNGKeyArray, config, settle: Settle, judge: Judge) -> Experience:
    """The ablation of both rewards from the start: process quality where Stage 1 would pay the outcome."""
    first, second = jax.random.split(key)
    plain = outcome_stage(policy, batch, first, config, settle, judge)
    routed = _routed(plain, batch, config)
    kept = np.where(routed[:, None], 0.0, plain.outcome)  # rollouts that are replaced need no labels
    plain = _pay_process(plain, *_labels(plain.rollout, lambda: kept, batch, config, judge), config=config)
    return _replace_by_scaffolded(policy, batch, plain, routed, second, config, settle)


STAGES = {"outcome": outcome_stage, "asr": asr_stage, "qpr": qpr_stage, "mixed": mixed_stage}


def _routed(plain: Experience, batch: Batch, config) -> Bool[np.ndarray, "P"]:
    """The problems that are tried again on their scaffold."""
    return np.asarray(rewards.route(plain.outcome, tau=config.asr.tau, valid=plain.valid)) & batch.routable


def _labels(rollout: Rollout, right: Callable, batch: Batch, config, judge: Judge) -> tuple:
    """((labels, mask of real steps), rows that the judge could not label); `right` gives the right rows."""
    if config.qpr.reward == "overlong":  # pays no labels: no judge is asked for them
        right = lambda: np.zeros((len(batch.problems), config.rollout.group))  # noqa: E731
    labels, label_mask, failed = judge(rollout, right, by_row(batch.problems, config.rollout.group))
    return (labels, label_mask), failed


def _attempt(policy, batch, key, config, settle) -> tuple[Rollout, Callable[[], Experience]]:
    """Rollouts on the original prompts, and a function that waits for the verdicts and pays the outcome."""
    group = config.rollout.group
    rollout = sample(policy, batch.prompts, batch.prompt_mask, key, Sampling.of(config.rollout))
    verdicts = main_verdicts(rollout, policy, batch.main_key, group, box=config.verifier.box)
    settled = settle(rollout, verdicts, by_row(batch.problems, group))

    @functools.cache  # waits once
    def finish() -> Experience:
        verdicts, checks = settled()
        verdicts = verdicts[:, 0].reshape(-1, group)
        outcome = rewards.outcome_reward(verdicts == RIGHT)
        return Experience(
            rollout=rollout,
            rewards=outcome,
            valid=verdicts != UNDECIDED,
            outcome=outcome,
            routed=np.zeros(len(batch.problems), bool),
            labels=None,
            sampled_tokens=jnp.sum(rollout.mask),
            checks=checks,
        )

    return rollout, finish


def _replace_by_scaffolded(policy, batch, plain, routed, key, config, settle) -> Experience:
    """The experience with the routed problems' rollouts sampled anew on their scaffolds and paid R_ASR."""
    group, columns = config.rollout.group, batch.scaffolded.shape[1] - batch.prompts.shape[1]
    plain = plain.replace(rollout=_pad_left(plain.rollout, columns))  # one width, routed or not: one compiled update
    if not routed.any():
        return plain
    rows = _bucket(np.flatnonzero(routed), len(routed), config.rollout.route_buckets, policy.shards)
    chosen = np.minimum(rows, len(routed) - 1)  # padding of the bucket samples some problem and is dropped
    problems = [batch.problems[i] if i < len(routed) else None for i in rows]
    chosen_rows = jax.tree.map(lambda x: x[chosen], (batch.scaffolded, batch.scaffolded_mask, batch.slot_key))
    prompts, prompt_mask, slot_key = policy.place(chosen_rows)
    rollout = sample(policy, prompts, prompt_mask, key, Sampling.of(config.rollout))
    verdicts = slot_verdicts(rollout, policy, slot_key, group, box=config.verifier.box)
    verdicts, checks = settle(rollout, verdicts, by_row(problems, group))()
    plain = plain.replace(checks=jax.tree.map(operator.add, plain.checks, checks))
    paid, valid = asr_rewards(verdicts, np.repeat(batch.sub_mask[chosen], group, axis=0), beta=config.asr.beta)
    return _merge(plain, rows, rollout, paid.reshape(-1, group), valid.reshape(-1, group))


@functools.partial(jax.jit, static_argnames="beta")
def asr_rewards(
    verdicts: Int8[Array, "B M1"], sub_mask: Bool[Array, "B M"], *, beta: float
) -> tuple[Float[Array, "B"], Bool[Array, "B"]]:
    """R_ASR from slot verdicts (main answer last), and whether it is known.

    An undecided slot behind a wrong one changes nothing: the chain is broken already. Any other makes the row invalid.
    """
    subs, main = verdicts[:, :-1], verdicts[:, -1]
    paid = rewards.asr_reward(subs == RIGHT, sub_mask, main == RIGHT, beta=beta)
    chain = jnp.concatenate([jnp.where(sub_mask, subs, RIGHT), main[:, None]], axis=1)
    unbroken = jnp.cumprod(chain != WRONG, axis=1).astype(bool)
    return paid, ~jnp.any(unbroken & (chain == UNDECIDED), axis=1)


@functools.partial(jax.jit, static_argnames="config")
def _pay_process(plain: Experience, labelled: tuple, failed: Bool[Array, "B"] | None, *, config) -> Experience:
    """R_QPR, or the reward that an ablation pays in its place, on the original prompts.

    A right row that the judge could not label (`failed`) is paid its outcome, 1 (ours): an outage must not punish it.
    """
    labels, label_mask = labelled
    right = (plain.outcome == 1.0).reshape(-1)
    c = config.qpr
    if c.reward == "process":
        paid = rewards.qpr_reward(
            labels,
            label_mask,
            right,
            penalties=c.penalties,
            alpha=c.alpha,
            positive=c.positive,
            penalise=c.penalise,
            length=c.length,
        )
    elif c.reward == "holistic":
        paid = rewards.holistic_reward(labels, label_mask, right)
    elif c.reward == "overlong":
        lengths = jnp.sum(plain.rollout.mask, axis=1)
        limit = config.rollout.max_new_tokens
        paid = right + rewards.overlong_penalty(lengths, max_length=limit, cache=int(limit * c.overlong_share))
    else:
        raise ValueError(f"config.qpr.reward is {c.reward!r}; it must be process, holistic or overlong")
    if failed is not None:
        paid = jnp.where(failed, plain.outcome.reshape(-1), paid)
    return plain.replace(rewards=paid.reshape(plain.outcome.shape), labels=labelled, judge_failed=failed)


def sample(policy: Policy, prompts, prompt_mask, key: PRNGKeyArray, sampling: Sampling) -> Rollout:
    """Rollouts of a policy, compiled once for each shape and each way to sample."""
    return _generate(policy.params, policy.model, prompts, prompt_mask, key, sampling=sampling)


def main_verdicts(rollout: Rollout, policy: Policy, key: AnswerKey, group: int, *, box: str) -> Int8[Array, "B 1"]:
    """Verdicts of the main answers, as one column; `key` has one row a problem. `box` is `config.verifier.box`."""
    return _verdicts(rollout, policy.table, key, group=group, eos_ids=policy.model.eos_ids, slots=False, box=box)


def slot_verdicts(rollout: Rollout, policy: Policy, key: AnswerKey, group: int, *, box: str) -> Int8[Array, "B M1"]:
    """Verdicts of a scaffold's slots, main answer last."""
    return _verdicts(rollout, policy.table, key, group=group, eos_ids=policy.model.eos_ids, slots=True, box=box)


def ended(rollout: Rollout, eos_ids: tuple[int, ...]) -> Bool[Array, "B"]:
    """Rows that gave an end token; the others met the length limit."""
    return jnp.any(rollout.mask & jnp.isin(rollout.tokens, jnp.asarray(eos_ids, jnp.int32)), axis=1)


def by_row(problems: Sequence[Problem | None], group: int) -> list[Problem | None]:
    """The problem of each rollout."""
    return [problem for problem in problems for _ in range(group)]


@functools.partial(jax.jit, static_argnames=("model", "sampling"))
def _generate(params, model, prompts, prompt_mask, key, *, sampling):
    return generate(
        params,
        model,
        prompts,
        prompt_mask,
        key,
        samples_per_prompt=sampling.group,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        eos_ids=model.eos_ids,
    )


def _verdicts(rollout, table, key, *, group, eos_ids, slots, box):
    key, whole = _key_by_row(rollout, key, group=group, eos_ids=eos_ids)
    if slots:
        return rewards.verify_slots(rollout.tokens, rollout.mask, table, key, ended=whole, box=box)
    return rewards.verify_main(rollout.tokens, rollout.mask, table, key, ended=whole, box=box)[:, None]


@functools.partial(jax.jit, static_argnames=("group", "eos_ids"))
def _key_by_row(rollout, key, *, group, eos_ids):
    return jax.tree.map(lambda x: jnp.repeat(x, group, axis=0), key), ended(rollout, eos_ids)


@functools.partial(jax.jit, static_argnames="columns")
def _pad_left(rollout: Rollout, columns: int) -> Rollout:
    """The same rollout behind more padding columns."""
    return jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (columns, 0))), rollout)


@jax.jit
def _merge(plain: Experience, rows, rollout: Rollout, paid, valid) -> Experience:
    """Scaffolded rollouts in the place of the original ones of problems `rows`; rows past the end are dropped."""
    problems, group = plain.rewards.shape

    def put(old, new):
        grouped = old.reshape(problems, group, *old.shape[1:])
        new = new.reshape(len(rows), group, *old.shape[1:]).astype(old.dtype)
        return grouped.at[rows].set(new, mode="drop").reshape(old.shape)

    kept = rows < problems
    return plain.replace(
        rollout=jax.tree.map(put, plain.rollout, rollout),
        rewards=plain.rewards.at[rows].set(paid, mode="drop"),
        valid=plain.valid.at[rows].set(valid, mode="drop"),
        routed=jnp.zeros(problems, bool).at[rows].set(True, mode="drop"),
        sampled_tokens=plain.sampled_tokens + jnp.sum(rollout.mask & jnp.repeat(kept, group)[:, None]),
    )


def _bucket(rows: np.ndarray, total: int, buckets: int, shards: int = 1) -> np.ndarray:
    """Rows padded (with `total`, out of range) to one of a few sizes, each a multiple of `shards`: few programs compile."""
    unit = math.lcm(total // buckets if total % buckets == 0 else total, shards)
    size = -(-len(rows) // unit) * unit
    return np.concatenate([rows, np.full(size - len(rows), total)]).astype(np.int32)

