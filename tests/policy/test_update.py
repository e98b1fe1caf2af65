import functools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import pytest

from configs import base
from scope_jax import qwen3
from scope_jax.meshes import batch_sharding, make_mesh
from scope_jax.policy import group_advantages, token_logprobs
from scope_jax.policy.update import TrainState, make_optimizer, update
from scope_jax.qwen3.params import Leaf, describe
from scope_jax.qwen3.sharding import param_shardings
from scope_jax.rollout import generate

GROUPS, GROUP, PROMPT, NEW = 4, 4, 5, 7
MODEL = qwen3.Config(
    vocab_size=64,
    d_model=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    d_ff=32,
    eos_ids=(3, 9, 11, 17, 20, 25),  # so many that some rows are short
    remat=False,
)
STEP = 0.5
PLAIN = optax.sgd(STEP)  # moves by the gradient itself, so that parameters compare as gradients do
VALID = np.ones((GROUPS, GROUP), bool)
PARTLY_VALID = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]], bool)
REWARDS = np.random.default_rng(0).choice([0.0, 0.25, 0.5, 1.0], size=(GROUPS, GROUP)).astype(np.float32)
GSPO = {"loss.algorithm": "gspo", "loss.aggregation": "seq-mean-token-mean"}

sample = jax.jit(
    functools.partial(
        generate, config=MODEL, samples_per_prompt=GROUP, max_new_tokens=NEW, temperature=0.7, eos_ids=MODEL.eos_ids
    )
)
score = jax.jit(functools.partial(token_logprobs, config=MODEL, temperature=0.7))


def draw(seed):
    """Parameters large enough that the policy is far from uniform."""
    rng = np.random.default_rng(seed)

    def fill(leaf):
        return jnp.asarray(0.15 * rng.normal(size=leaf.shape) + (leaf.init == "ones"), jnp.float32)

    return jax.tree.map(fill, describe(MODEL), is_leaf=lambda x: isinstance(x, Leaf))


def small_config(**fields):
    c = base.get_config()
    c.rollout.prompts, c.rollout.group, c.rollout.temperature = GROUPS, GROUP, 0.7
    c.rollout.max_prompt_tokens, c.rollout.max_new_tokens = PROMPT, NEW
    c.loss.head_chunk = 3
    c.update_from_flattened_dict(fields)
    return ml_collections.FrozenConfigDict(c)


def sampled_by(params):
    rng = np.random.default_rng(1)
    prompts = rng.integers(64, size=(GROUPS, PROMPT)).astype(np.int32)
    mask = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 1]], bool)
    return sample(params, prompts=prompts, prompt_mask=mask, key=jax.random.key(2))


def step(params, rollout, rewards=REWARDS, valid=VALID, *, config=None, optimizer=PLAIN, ref_params=None):
    """One update from a fresh state; `update` takes the state's buffers, so it gets copies."""
    params, ref_params = jax.tree.map(jnp.copy, (params, ref_params))
    state = TrainState(
        params=params,
        optimizer_state=optimizer.init(params),
        ref_params=ref_params,
        step=jnp.int32(41),
        key=jax.random.key(3),
    )
    config = small_config() if config is None else config
    return update(state, rollout, rewards, valid, model=MODEL, config=config, optimizer=optimizer, start=PROMPT)


@jax.jit
@jax.grad
def plain_gradient(params, rollout, weights):
    """Of minus the weighted log-probs, a weight a row, read off the logits of the whole batch."""
    logits = qwen3.forward(params, MODEL, rollout.tokens, segment_ids=rollout.segment_ids) / 0.7
    real = jnp.where(rollout.segment_ids > 0, jnp.arange(PROMPT + NEW), 0)
    before = jax.lax.cummax(real, axis=1)[:, PROMPT - 1 : -1]  # the column that predicts each completion column
    logprobs = jax.nn.log_softmax(jnp.take_along_axis(logits, before[..., None], axis=1))
    chosen = jnp.take_along_axis(logprobs, rollout.tokens[:, PROMPT:, None], axis=-1)[..., 0]
    return -jnp.sum(weights[:, None] * jnp.where(rollout.mask[:, PROMPT:], chosen, 0.0))


def close(ours, theirs, tolerance):
    """Every entry of every array within `tolerance`."""
    for (path, leaf), other in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def equal(ours, theirs):
    close(ours, theirs, 0.0)


@pytest.fixture(scope="module")
def params():
    return draw(0)


@pytest.fixture(scope="module")
def rollout(params):
    """Sixteen on-policy rows of unequal length."""
    rollout = sampled_by(params)
    lengths = np.asarray(rollout.mask.sum(axis=1))
    assert lengths.min() <= 2 and lengths.max() == NEW
    return rollout


@pytest.fixture(scope="module")
def updated(params, rollout):
    return step(params, rollout)


def test_the_on_policy_ratio_is_one_at_the_first_step(updated):
    """The sampler's log-probs are the trainer's, at the temperature of both."""
    _, metrics, _ = updated
    assert abs(metrics["ratio"] - 1) < 1e-5
    assert 0 <= metrics["sampler_gap"] < 1e-5
    assert metrics["clip_low"] == metrics["clip_high"] == 0
    assert abs(metrics["kl_old_k1"]) < 1e-5 and abs(metrics["kl_old_k3"]) < 1e-7


def test_a_stale_sampler_shows_in_the_gap_at_once(params, rollout):
    nudged = jax.tree.map(lambda x: 1.01 * x, params)
    _, metrics, _ = step(nudged, rollout)
    assert metrics["sampler_gap"] > 5e-3
    assert step(draw(1), rollout)[1]["sampler_gap"] > 0.5
    for shift in (0.3, -0.3):  # one token is enough, in either direction
        shifted = rollout.replace(logprobs=rollout.logprobs.at[6, PROMPT].add(shift))
        np.testing.assert_allclose(step(params, shifted)[1]["sampler_gap"], 0.3, atol=1e-5)


@pytest.mark.parametrize("fields", [{}, GSPO], ids=["grpo", "gspo"])
@pytest.mark.parametrize("valid", [VALID, PARTLY_VALID], ids=["all_valid", "some_invalid"])
def test_an_update_descends_the_gradient_of_the_plain_policy_loss(params, rollout, fields, valid):
    """On-policy: minus the advantage times the log-prob, a mean over tokens for GRPO and over rows for GSPO.

    Rows without a verdict are in neither mean: masked out, not paid as 0.
    """
    state, metrics, advantages = step(params, rollout, valid=valid, config=small_config(**fields))
    np.testing.assert_array_equal(advantages, group_advantages(jnp.asarray(REWARDS), valid=valid))
    lengths, rows = np.asarray(rollout.mask.sum(axis=1)), valid.reshape(-1)
    weights = np.asarray(advantages).reshape(-1)
    weights = weights / (lengths * rows.sum()) if fields else weights / lengths[rows].sum()
    gradient = plain_gradient(params, rollout, weights)
    assert optax.tree.norm(gradient) > 0.1
    close(state.params, jax.tree.map(lambda p, g: p - STEP * g, params, gradient), 1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], optax.tree.norm(gradient), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], -np.sum(weights * lengths), atol=1e-6)  # the ratio is one


@pytest.mark.parametrize("fields, parts", [({}, 2), ({}, 4), (GSPO, 4)], ids=["grpo_2", "grpo_4", "gspo_4"])
def test_micro_batches_add_up_to_the_full_batch(params, rollout, fields, parts):
    """Parts hold unequal numbers of tokens, so that dividing inside a part would show."""
    whole_state, whole, _ = step(params, rollout, valid=PARTLY_VALID, config=small_config(**fields))
    config = small_config(**fields, **{"loss.micro_batches": parts})
    state, metrics, _ = step(params, rollout, valid=PARTLY_VALID, config=config)
    close(state.params, whole_state.params, 1e-6)
    close(metrics, whole, 2e-6)


def test_the_constant_aggregation_divides_by_the_limit_whatever_the_width_at_hand(params, rollout):
    """Updates are cut to the longest row; a loss that followed the cut would change its scale from step to step."""
    config = small_config(**{"loss.aggregation": "constant"})
    wider = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 5))), rollout)
    state, metrics, _ = step(params, rollout, config=config)
    wide_state, wide_metrics, _ = step(params, wider, config=config)
    close(wide_state.params, state.params, 1e-6)
    close(wide_metrics, metrics, 2e-6)


def test_without_a_name_the_aggregation_is_the_algorithms_own(params, rollout):
    def loss(**fields):
        return float(step(params, rollout, config=small_config(**{"loss.algorithm": "gspo"}, **fields))[1]["grad_norm"])

    own = loss(**{"loss.aggregation": ""})
    assert own == loss(**{"loss.aggregation": "seq-mean-token-mean"})
    assert abs(own - loss(**{"loss.aggregation": "token-mean"})) > 1e-4 * own


def test_micro_batches_that_do_not_divide_the_batch_are_refused(params, rollout):
    with pytest.raises(ValueError, match="loss.micro_batches=3 does not divide 16 rollouts"):
        step(params, rollout, config=small_config(**{"loss.micro_batches": 3}))


def test_rows_without_a_verdict_change_nothing_whatever_they_hold(params, rollout):
    rows = ~PARTLY_VALID.reshape(-1, 1)
    wrecked = rollout.replace(
        tokens=jnp.where(rows & rollout.mask, 5, rollout.tokens), logprobs=jnp.where(rows, jnp.nan, rollout.logprobs)
    )
    clean = step(params, rollout, np.where(PARTLY_VALID, REWARDS, 0.0), PARTLY_VALID)
    state, metrics, advantages = step(params, wrecked, np.where(PARTLY_VALID, REWARDS, np.nan), PARTLY_VALID)
    equal((state.params, metrics, advantages), (clean[0].params, *clean[1:]))
    assert metrics["grad_norm"] > 0.1 and not np.asarray(advantages)[~PARTLY_VALID].any()


def test_a_batch_without_signal_leaves_the_parameters_alone(params, rollout):
    """Equal fractional rewards do not centre to zero in float32, and Adam would blow the rest up."""
    optimizer = make_optimizer(small_config(**{"optimizer.learning_rate": 1e-2}).optimizer)
    nothing = np.zeros_like(VALID)
    for rewards, valid in ((np.full_like(REWARDS, 1.1), VALID), (REWARDS, nothing), (np.nan * REWARDS, nothing)):
        state, metrics, advantages = step(params, rollout, rewards, valid, optimizer=optimizer)
        equal(state.params, params)
        assert metrics["loss"] == metrics["grad_norm"] == 0
        assert not advantages.any()
    state, _, _ = step(params, rollout, optimizer=optimizer)
    moved = np.concatenate([np.abs(a - b).ravel() for a, b in zip(*map(jax.tree.leaves, (state.params, params)))])
    np.testing.assert_allclose(np.median(moved), 1e-2, rtol=1e-2)  # Adam's first step: the learning rate, everywhere


def test_a_gradient_that_is_not_finite_is_reported_by_parameter(params, rollout, updated):
    """A NaN reward that counts as known must show, not vanish."""
    assert all(jax.tree.leaves(updated[1]["finite"]))
    _, metrics, _ = step(params, rollout, np.where(PARTLY_VALID, REWARDS, np.nan), VALID)
    assert jax.tree.structure(metrics["finite"]) == jax.tree.structure(params)
    assert not any(jax.tree.leaves(metrics["finite"]))


def test_the_learning_rate_warms_up_linearly_and_stays():
    c = small_config(**{"optimizer.learning_rate": 0.1, "optimizer.warmup": 3}).optimizer
    optimizer, weight = make_optimizer(c), jnp.zeros(1)
    state, moves = optimizer.init(weight), []
    for _ in range(6):
        change, state = optimizer.update(jnp.ones(1), state, weight)
        moves.append(-change.item())
    np.testing.assert_allclose(moves, [0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rtol=1e-4)


def test_the_kl_term_pulls_towards_the_reference_parameters(params, rollout):
    config, no_signal = small_config(**{"loss.kl": 0.02, "loss.kl_estimator": "k3"}), np.ones_like(REWARDS)
    at_home, metrics, _ = step(params, rollout, no_signal, config=config, ref_params=params)
    assert metrics["kl_ref"] == metrics["loss"] == 0
    close(at_home.params, params, 1e-6)

    other = draw(1)
    state, metrics, _ = step(params, rollout, no_signal, config=config, ref_params=other)
    scored = functools.partial(score, tokens=rollout.tokens, mask=rollout.mask, segment_ids=rollout.segment_ids)
    ref, mask = np.asarray(scored(other)), np.asarray(rollout.mask)

    def kl(params):
        d = ref - np.asarray(scored(params))
        return np.mean((np.exp(d) - d - 1)[mask])

    np.testing.assert_allclose(metrics["kl_ref"], kl(params), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], 0.02 * kl(params), rtol=1e-5)
    assert kl(state.params) < kl(params)
    equal(state.ref_params, other)


def test_an_update_counts_itself_and_keeps_the_key(updated, rollout, params):
    state, metrics, _ = updated
    assert state.step == 42 and state.ref_params is None
    assert jax.random.key_data(state.key).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    scored = functools.partial(score, params, tokens=rollout.tokens, segment_ids=rollout.segment_ids)
    assert scored(mask=rollout.mask).sum() < 0  # the caller's parameters are still there
    assert 0 < metrics["entropy"] < np.log(64)


@pytest.mark.parametrize("axes, parts", [("data=8", 2), ("data=2,fsdp=2,tensor=2", 1)])
def test_a_sharded_update_equals_that_of_one_device(params, rollout, updated, axes, parts):
    mesh = make_mesh(axes)
    placed = jax.device_put(params, param_shardings(MODEL, mesh))
    rows = jax.device_put(rollout, batch_sharding(mesh))
    state, metrics, advantages = step(placed, rows, config=small_config(**{"loss.micro_batches": parts}))
    close(state.params, updated[0].params, 1e-5)
    close(advantages, updated[2], 1e-6)
    close(metrics, updated[1], 1e-5)
