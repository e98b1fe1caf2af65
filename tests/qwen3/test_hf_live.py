"""Checkpoints exchanged with transformers itself, both ways; needs torch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.qwen3 import hf

torch = pytest.importorskip("torch")

import transformers  # noqa: E402

SIZES = {
    "vocab_size": 47,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 36,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
run = jax.jit(qwen3.forward, static_argnames="config")


def random_model(tied, dtype=torch.float32, model_type="qwen3"):
    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 20_000.0}
    config = transformers.AutoConfig.for_model(model_type, **SIZES, tie_word_embeddings=tied, rope_parameters=rope)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape) * (0.4 if "bias" in name else 0.1) + ("norm" in name))
    return model.to(dtype)


def padded_batch():
    rng = np.random.default_rng(0)
    real = np.array([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8, [1, 1, 1, 1, 0, 0, 0, 0]], np.int32)
    return rng.integers(47, size=real.shape).astype(np.int32), real


def reference_logits(model, tokens, real):
    positions = torch.tensor((real.cumsum(-1) - 1).clip(min=0))
    with torch.no_grad():
        out = model(torch.tensor(tokens), attention_mask=torch.tensor(real), position_ids=positions)
    return out.logits.float().numpy()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [True, False])
def test_checkpoints_of_transformers_load_with_equal_logits(tmp_path, tied, shards):
    model = random_model(tied)
    model.save_pretrained(tmp_path, max_shard_size="8KB" if shards else "1GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    config, params = qwen3.load(tmp_path)
    assert (config.rope_theta, config.tie_embeddings) == (20_000.0, tied)
    tokens, real = padded_batch()
    difference = run(params, config, tokens, segment_ids=real) - reference_logits(model, tokens, real)
    assert np.abs(np.asarray(difference)[real > 0]).max() < 3e-6


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shards", [True, False])
def test_saved_checkpoints_load_in_transformers_with_equal_logits(tmp_path, tiny_config, tiny_params, tied, shards):
    config, params = dataclasses.replace(tiny_config, tie_embeddings=tied, rope_theta=3000.0), dict(tiny_params)
    if tied:
        del params["lm_head"]
    qwen3.save(tmp_path, config, params, max_shard_bytes=8_000 if shards else 10**9)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert model.generation_config.eos_token_id == [3]
    tokens, real = padded_batch()
    difference = run(params, config, tokens, segment_ids=real) - reference_logits(model, tokens, real)
    assert np.abs(np.asarray(difference)[real > 0]).max() < 2e-5


@pytest.mark.parametrize("model_type", ["qwen2", "llama"])
def test_other_architectures_load_with_equal_logits_and_go_back(tmp_path, model_type):
    """Their folder, ours, and theirs again: equal tensors by name, equal logits, nothing missing or left over."""
    model = random_model(tied=True, model_type=model_type)
    model.save_pretrained(tmp_path / "theirs")
    config, params = qwen3.load(tmp_path / "theirs")
    assert config.model_type == model_type
    tokens, real = padded_batch()
    difference = run(params, config, tokens, segment_ids=real) - reference_logits(model, tokens, real)
    assert np.abs(np.asarray(difference)[real > 0]).max() < 3e-6
    qwen3.save(tmp_path / "ours", config, params)
    back, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()) and type(back) is type(model)
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    np.testing.assert_array_equal(reference_logits(back, tokens, real), reference_logits(model, tokens, real))


@pytest.mark.parametrize("model_type", ["qwen2", "llama"])
def test_gradients_equal_those_of_transformers(tmp_path, model_type):
    """Those of the biases among them."""
    model = random_model(tied=False, model_type=model_type)
    model.save_pretrained(tmp_path)
    config, params = qwen3.load(tmp_path)
    tokens, real = padded_batch()
    tokens = np.maximum(tokens, 1)  # torch gives the pad token, 0, no gradient

    @jax.jit
    def gradient(params):
        def loss(params):
            logits = qwen3.forward(params, config, tokens, segment_ids=real)
            return jnp.sum(jax.nn.log_softmax(logits)[..., 7] * real)

        return jax.grad(loss)(params)

    positions = torch.tensor((real.cumsum(-1) - 1).clip(min=0))
    logits = model(torch.tensor(tokens), attention_mask=torch.tensor(real), position_ids=positions).logits
    (torch.log_softmax(logits, -1)[..., 7] * torch.tensor(real)).sum().backward()
    theirs = {name: weight.grad.numpy() for name, weight in model.named_parameters()}
    ours = hf._flatten(gradient(params))
    compared = set()
    for entry in hf.entries(config):
        for layer, name in enumerate(entry.tensors):
            found = entry.write(np.asarray(ours[entry.leaf][layer] if entry.stacked else ours[entry.leaf]))
            assert np.abs(theirs[name]).max() > 1e-4
            np.testing.assert_allclose(found, theirs[name], rtol=1e-4, atol=2e-5, err_msg=name)
            compared.add(name)
    assert compared == theirs.keys()
    assert any("bias" in name for name in compared) == (model_type == "qwen2")


def test_bfloat16_weights_survive_the_round_trip_bit_by_bit(tmp_path):
    model = random_model(tied=False, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "theirs")
    config, params = qwen3.load(tmp_path / "theirs")
    assert config.dtype == "bfloat16"
    qwen3.save(tmp_path / "ours", config, params)
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert back.dtype == torch.bfloat16
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.equal(weight.view(torch.int16), after[name].view(torch.int16)), name
