"""Where a step stands, what a new stage keeps, how wide an update is, and what the log says of a step."""

import functools
import importlib.resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from ml_collections import FrozenConfigDict

from configs import base
from scope_jax import scope, step as step_module
from scope_jax.data.batches import encode_problems
from scope_jax.data.prompts import BARE
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.data.sources import batch_indices
from scope_jax.meshes import make_mesh
from scope_jax.policy.update import make_optimizer
from scope_jax.qwen3 import Config
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rollout import Rollout
from scope_jax.scope import Experience
from scope_jax.step import begin_stage, initial_state, place_of, summarise, train_step, trim
from scope_jax.verify import Result
from scope_jax.verify.settle import count_results

STAGES = (("asr", 2), ("qpr", 3))
MESH = make_mesh("data=1", jax.devices()[:1])


@pytest.mark.parametrize(
    ("step", "place"),
    [(0, ("asr", True)), (1, ("asr", False)), (2, ("qpr", True)), (3, ("qpr", False)), (4, ("qpr", False))],
)
def test_a_step_knows_its_stage_and_whether_the_stage_begins(step, place):
    assert place_of(step, STAGES) == place


def test_a_stage_of_no_updates_is_passed_over():
    assert place_of(0, (("asr", 0), ("qpr", 1))) == ("qpr", True)


def test_a_step_past_the_end_is_refused():
    with pytest.raises(ValueError, match="1 past the last stage"):
        place_of(5, STAGES)


def config_with(**fields):
    c = base.get_config()
    c.update_from_flattened_dict(fields)
    return FrozenConfigDict(c)


def test_a_stage_begins_with_the_parameters_before_it_and_a_fresh_optimizer():
    config = config_with(**{"loss.kl": 0.1})
    optimizer = make_optimizer(config.optimizer)
    params = {"w": jnp.ones((2, 2))}
    state = initial_state(params, config, optimizer, MESH)
    change, moments = optimizer.update({"w": jnp.full((2, 2), 3.0)}, state.optimizer_state, params)
    key = jax.random.key(99)
    trained = state.replace(params={"w": params["w"] + 7.0}, optimizer_state=moments, step=state.step + 5, key=key)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(moments))

    begun = begin_stage(trained, config, optimizer, MESH)
    np.testing.assert_array_equal(begun.params["w"], 8.0)
    np.testing.assert_array_equal(begun.ref_params["w"], 8.0)  # the stage's own first parameters are its reference
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(begun.optimizer_state))
    assert int(begun.step) == 5
    assert jnp.array_equal(jax.random.key_data(begun.key), jax.random.key_data(key))


def test_the_reference_is_a_copy_that_training_cannot_reach_and_absent_without_a_kl_term():
    params = {"w": jnp.ones(3)}
    with_kl = config_with(**{"loss.kl": 0.1})
    state = initial_state(params, with_kl, make_optimizer(with_kl.optimizer), MESH)
    assert state.ref_params["w"].unsafe_buffer_pointer() != params["w"].unsafe_buffer_pointer()
    without = config_with()
    assert initial_state(params, without, make_optimizer(without.optimizer), MESH).ref_params is None


def test_each_seed_of_a_run_has_a_key_of_its_own():
    config = config_with(seed=3)
    state = initial_state({"w": jnp.ones(3)}, config, make_optimizer(config.optimizer), MESH)
    assert jnp.array_equal(jax.random.key_data(state.key), jax.random.key_data(jax.random.key(3)))


def test_moments_are_cut_over_the_devices_as_their_parameters_are():
    """Whole on every device, they would take twice the memory of the parameters that were cut to fit."""
    mesh, config = make_mesh("fsdp=8"), config_with()
    params = {"w": jax.device_put(jnp.ones((8, 2)), NamedSharding(mesh, PartitionSpec("fsdp")))}
    state = initial_state(params, config, make_optimizer(config.optimizer), mesh)
    moments = [leaf for leaf in jax.tree.leaves(state.optimizer_state) if leaf.shape == (8, 2)]
    assert len(moments) == 2 and all(leaf.sharding == params["w"].sharding for leaf in moments)


def rollout_of(lengths, prompt=5, limit=16):
    mask = np.arange(limit) < np.asarray(lengths)[:, None]
    mask = np.concatenate([np.zeros((len(lengths), prompt), bool), mask], axis=1)
    rows = jnp.asarray(mask)
    return Rollout(tokens=jnp.where(rows, 7, 0), mask=rows, logprobs=jnp.where(rows, -1.0, 0.0), segment_ids=rows.astype(jnp.int32))


@pytest.mark.parametrize(("lengths", "width"), [([1, 3], 4), ([4, 1], 4), ([5, 1], 8), ([16, 2], 16), ([0, 0], 4)])
def test_an_update_is_as_wide_as_a_bucket_needs_and_loses_no_token(lengths, width):
    whole = rollout_of(lengths)
    cut = trim(whole, 5, 4)
    assert {x.shape for x in jax.tree.leaves(cut)} == {(2, 5 + width)}
    assert int(cut.mask.sum()) == int(whole.mask.sum())


@pytest.mark.parametrize("length", range(17))
def test_buckets_that_do_not_divide_the_limit_still_lose_no_token(length):
    cut = trim(rollout_of([length]), 5, 3)  # units of 6 columns, and a last one of 4
    assert int(cut.mask.sum()) == length and cut.tokens.shape[1] <= 5 + 16


def test_the_log_of_a_step_leaves_undecided_rows_out_of_the_mean_reward():
    rollout = rollout_of([4, 2, 16, 1])
    rollout = rollout.replace(tokens=rollout.tokens.at[0, 5 + 3].set(3).at[1, 5 + 1].set(3).at[3, 5].set(3))
    experience = Experience(
        rollout=rollout,
        rewards=jnp.array([[1.0, 0.5], [0.25, 0.25]]),
        valid=jnp.array([[True, False], [True, True]]),
        outcome=jnp.array([[1.0, 0.0], [0.0, 0.0]]),
        routed=jnp.array([False, True]),
        labels=None,
        sampled_tokens=jnp.int32(40),
        checks=count_results([Result.right, Result.timed_out, Result.timed_out]),
    )
    measured = {name: float(value) for name, value in summarise(experience, eos_ids=(3,)).items()}
    assert measured == pytest.approx(
        {
            "reward": 0.5,
            "outcome": 0.25,
            "eta_r": 0.0,  # the first group has one valid row, the second is constant
            "routed": 0.5,
            "length": 23 / 4,
            "truncated": 0.25,
            "undecided": 0.25,
            "generated_tokens": 40,
            "verify_checked": 3,
            "verify_right": 1,
            "verify_wrong": 0,
            "verify_no_answer": 0,
            "verify_unreadable_gold": 0,
            "verify_timed_out": 2,
        }
    )


def test_a_step_of_undecided_rows_alone_is_logged_with_finite_numbers():
    """A number that is not finite ends a run, and nothing is wrong with this one: its update is nothing."""
    experience = Experience(
        rollout=rollout_of([4, 2]),
        rewards=jnp.zeros((1, 2)),
        valid=jnp.zeros((1, 2), bool),
        outcome=jnp.zeros((1, 2)),
        routed=jnp.array([False]),
        labels=None,
        sampled_tokens=jnp.int32(6),
    )
    measured = summarise(experience, eos_ids=(3,))
    assert all(np.isfinite(value) for value in measured.values())
    assert (float(measured["reward"]), float(measured["undecided"])) == (0.0, 1.0)


NEW = 16
SCAFFOLD = (SubQuestion("What is the value of a?", "15"), SubQuestion("What is the value of b?", "11"))
PROBLEMS = [Problem(f"p{i}", f"a=12+3. b=a-4. c=b+{i}. What is c?", str(11 + i), scaffold=SCAFFOLD) for i in range(6)]


@pytest.fixture
def steps(monkeypatch):
    """Calls `train_step`; stages and update keep what they are given, and a rollout stands behind a wider prompt."""
    config = config_with(
        **{"stages": STAGES, "seed": 5, "rollout.prompts": 2, "rollout.max_new_tokens": NEW, "rollout.length_buckets": 4}
    )
    tokenizer = load_tokenizer(importlib.resources.files("scope_jax.data") / "chains_model")
    table = encode_problems(PROBLEMS, tokenizer, BARE, max_prompt_tokens=64, max_scaffold_tokens=96)
    assert table.scaffolded.shape[1] > table.prompts.shape[1]
    staged, updated = [], []

    def stage(name, policy, batch, key, config, settle, judge):
        rewards, valid = jnp.arange(4.0).reshape(2, 2) + len(staged), jnp.array([[True, False], [True, True]])
        rollout = rollout_of([3, 5, 1, 2], prompt=table.scaffolded.shape[1], limit=NEW)
        experience = Experience(rollout, rewards, valid, jnp.zeros((2, 2)), np.zeros(2, bool), None, jnp.int32(11))
        staged.append({"name": name, "policy": policy, "batch": batch, "key": key, "settle": (settle, judge), "paid": experience})
        return experience

    def update(state, rollout, rewards, valid, **options):
        updated.append({"rollout": rollout, "rewards": rewards, "valid": valid, **options})
        return state.replace(step=state.step + 1), {"loss": jnp.float32(0.0)}, rewards - 1.0

    monkeypatch.setattr(scope, "STAGES", {name: functools.partial(stage, name) for name, _ in STAGES})
    monkeypatch.setattr(step_module, "update", update)
    optimizer = make_optimizer(config.optimizer)
    state = initial_state({"w": jnp.ones(3)}, config, optimizer, MESH)
    policy = scope.Policy({"w": jnp.zeros(3)}, Config(8, 8, 1, 1, 1, 8, 8, eos_ids=(3,)), None)

    def run(numbers, own_reward=None):
        staged.clear(), updated.clear()
        parts = (config, optimizer, "settle", "judge", own_reward)
        results = [train_step(state, policy, table, number, *parts) for number in numbers]
        return state, staged, updated, results

    return run


def test_every_step_runs_its_own_stage_on_its_own_problems(steps):
    _, staged, updated, _ = steps(range(5))
    assert [call["name"] for call in staged] == ["asr", "asr", "qpr", "qpr", "qpr"]
    ids = [[problem.id for problem in call["batch"].problems] for call in staged]
    assert ids == [[f"p{i}" for i in batch_indices(6, 2, step, 5)] for step in range(5)]
    assert sorted(sum(ids[:3], [])) == sorted(problem.id for problem in PROBLEMS)  # one epoch


def test_a_step_samples_from_the_states_parameters_with_a_key_that_only_its_number_decides(steps):
    state, staged, *_ = steps([0, 1, 2, 3, 1])
    assert all(call["policy"].params is state.params and call["settle"] == ("settle", "judge") for call in staged)
    keys = [jax.random.key_data(call["key"]).tolist() for call in staged]
    assert len({*map(tuple, keys)}) == 4 and keys[4] == keys[1]


def test_a_reward_of_ones_own_is_what_the_update_the_log_and_the_metrics_see(steps):
    def own_reward(experience, batch, stage):
        assert len(batch.problems) == 2 and stage == "asr"
        return experience.replace(rewards=jnp.full((2, 2), 7.0))

    *_, [update], [(_, (experience, *_), measured)] = steps([0], own_reward)
    assert update["rewards"] is experience.rewards and float(measured["reward"]) == 7.0


def test_the_update_takes_what_the_stage_paid_and_starts_at_the_first_completion_column(steps):
    """Behind the scaffold's width, not the plain prompt's: padding in between would cost as much as text."""
    _, staged, [update], [(state, (experience, batch, advantages), measured)] = steps([0])
    paid, start = staged[0]["paid"], update["start"]
    assert update["rewards"] is paid.rewards and update["valid"] is paid.valid
    assert update["rollout"].mask[:, start].all() and not update["rollout"].mask[:, :start].any()
    assert update["rollout"].tokens.shape[1] == start + 8  # the longest has 5 tokens: two of four quarters
    assert experience is paid and batch is staged[0]["batch"] and int(state.step) == 1
    np.testing.assert_array_equal(advantages, paid.rewards - 1.0)
    assert {"loss", "reward", "eta_r", "generated_tokens"} <= measured.keys()
