import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.qwen3.params import count

# Published models: width, feed-forward width, layers, query heads, tied, and all parameters.
PUBLISHED = {
    "0.6B": (1024, 3072, 28, 16, True, 596_049_920),
    "1.7B": (2048, 6144, 28, 16, True, 1_720_574_976),
    "4B": (2560, 9728, 36, 32, True, 4_022_468_096),
    "8B": (4096, 12288, 36, 32, False, 8_190_735_360),
    "14B": (5120, 17408, 40, 40, False, 14_768_307_200),
    "32B": (5120, 25600, 64, 64, False, 32_762_123_264),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_give_the_published_parameter_counts(tmp_path, name):
    width, ff_width, layers, heads, tied, total = PUBLISHED[name]
    fields = {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": ff_width,
        "max_position_embeddings": 40960,
        "max_window_layers": layers,
        "model_type": "qwen3",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = qwen3.Config.from_hf(tmp_path)
    assert (config.rope_theta, config.dtype, config.head_dim) == (1e6, "bfloat16", 128)
    shapes = jax.eval_shape(lambda key: qwen3.init(config, key), jax.random.key(0))
    attention = width * 128 * (2 * heads + 2 * 8) + 2 * 128
    layer = attention + 3 * width * ff_width + 2 * width
    assert total == layers * layer + width + (1 if tied else 2) * 151936 * width
    assert count(shapes) == total


# Models of other architectures: type, widths, layers, heads, key/value heads, vocabulary, tied, and all parameters.
OTHERS = {
    "Qwen2.5-0.5B": ("qwen2", 896, 4864, 24, 14, 2, 151_936, True, 494_032_768),
    "Qwen2.5-7B": ("qwen2", 3584, 18944, 28, 28, 4, 152_064, False, 7_615_616_512),
    "SmolLM2-135M": ("llama", 576, 1536, 30, 9, 3, 49_152, True, 134_515_008),
}


@pytest.mark.parametrize("name", OTHERS)
def test_published_configs_of_other_architectures_give_the_published_counts(tmp_path, name):
    model_type, width, ff_width, layers, heads, kv_heads, vocabulary, tied, total = OTHERS[name]
    fields = {
        "model_type": model_type,
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": ff_width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": tied,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = qwen3.Config.from_hf(tmp_path)
    assert count(jax.eval_shape(lambda key: qwen3.init(config, key), jax.random.key(0))) == total


def test_random_parameters_have_the_wanted_spread_dtype_and_norms_at_one(tiny_config):
    init = jax.jit(lambda key: qwen3.init(tiny_config, key, dtype=jnp.bfloat16, scale=0.5))
    params = init(jax.random.key(1, impl="rbg"))  # compiles in a quarter of the time
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    np.testing.assert_allclose(np.std(params["embed"].astype(np.float32)), 0.5, rtol=0.1)
    assert (np.asarray(params["layers"]["q_norm"]) == 1).all()
    assert not np.array_equal(params["layers"]["gate"], params["layers"]["up"])


def test_random_biases_are_zero(tiny_models):
    config, _ = tiny_models["qwen2"]
    layers = jax.jit(lambda key: qwen3.init(config, key)["layers"])(jax.random.key(1, impl="rbg"))
    assert {name for name in layers if not np.any(layers[name])} == {"q_bias", "k_bias", "v_bias"}
    assert not {"q_norm", "k_norm"} & layers.keys()
