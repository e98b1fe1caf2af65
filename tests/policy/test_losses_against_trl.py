"""Policy losses and gradients against those of TRL's own loss code on the same arrays, where torch is installed."""

import collections
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.policy import policy_loss

torch = pytest.importorskip("torch")
grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer")

ROWS, COLUMNS = 6, 5


def batch():
    rng = np.random.default_rng(0)
    mask = np.arange(COLUMNS)[None] < np.array([5, 1, 3, 5, 2, 4])[:, None]
    logprobs, old, ref = (rng.normal(-1.0, 0.3, (ROWS, COLUMNS)).astype(np.float32) for _ in range(3))
    return logprobs, old, np.array([1.2, -0.7, 0.0, -1.5, 0.4, 2.0], np.float32), mask, ref


def trl_loss(arrays, *, loss_type, level, beta, delta):
    """TRL's loss method on a trainer that has nothing but the fields this method reads."""
    logprobs, old, advantages, mask, ref = (torch.tensor(array) for array in arrays)
    logprobs.requires_grad_(True)
    accelerator = types.SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True
    )
    trainer = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, torch.zeros_like(logprobs), None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=False,
        importance_sampling_level=level, beta=beta, loss_type=loss_type, epsilon_low=0.2, epsilon_high=0.28,
        args=types.SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1),
        model=types.SimpleNamespace(training=True), current_gradient_accumulation_steps=1,
        max_completion_length=COLUMNS, accelerator=accelerator, _entropy_bonus_enabled=False,
        _metrics={"train": collections.defaultdict(list)},
    )  # fmt: skip
    ids = torch.zeros((ROWS, COLUMNS), dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask.long(),
        "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": ref,
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    loss = grpo_trainer.GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    return loss.item(), logprobs.grad.numpy(), trainer._metrics["train"]


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(
    ("algorithm", "aggregation", "loss_type", "level"),
    [
        ("grpo", "token-mean", "dapo", "token"),
        ("grpo", "token-mean", "bnpo", "token"),
        ("grpo", "seq-mean-token-mean", "grpo", "token"),
        ("grpo", "constant", "dr_grpo", "token"),
        ("gspo", "seq-mean-token-mean", "grpo", "sequence"),
        ("gspo", "seq-mean-token-sum", "luspo", "sequence"),
    ],
)
def test_loss_and_gradient_agree_with_trl(algorithm, aggregation, loss_type, level, beta):
    arrays = batch()
    expected, expected_gradient, theirs = trl_loss(arrays, loss_type=loss_type, level=level, beta=beta, delta=None)
    old, advantages, mask, ref = (jnp.asarray(array) for array in arrays[1:])

    def loss(logprobs):
        numerator, denominator, metrics = policy_loss(
            logprobs, old, advantages, mask, algorithm=algorithm, aggregation=aggregation, clip_high=0.28,
            ref_logprobs=ref, kl_coef=beta, constant_length=COLUMNS,
        )  # fmt: skip
        return numerator / denominator, metrics

    (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(jnp.asarray(arrays[0]))
    assert float(value) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-7)
    share = {name: float(top / bottom) for name, (top, bottom) in metrics.items()}
    assert share["clip_low"] == pytest.approx(theirs["clip_ratio/low_mean"][0])
    assert share["clip_high"] == pytest.approx(theirs["clip_ratio/high_mean"][0])
    if beta:
        assert share["kl_ref"] == pytest.approx(theirs["kl"][0], rel=1e-5)
