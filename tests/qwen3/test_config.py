import dataclasses
import json

import pytest

from scope_jax.qwen3 import Config

FIELDS = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 151645,
}


def read(folder, generation=None, **fields):
    content = {key: value for key, value in {**FIELDS, **fields}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(content))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return Config.from_hf(folder)


@pytest.mark.parametrize(
    ("model_type", "qk_norm", "qkv_bias", "head_dim"),
    [("qwen3", True, False, 128), ("qwen2", False, True, 64), ("llama", False, False, 64)],
)
def test_the_model_type_sets_the_switches_and_the_default_head_width(tmp_path, model_type, qk_norm, qkv_bias, head_dim):
    """As transformers reads a config without head_dim, or with a null."""
    for absent in (..., None):
        config = read(tmp_path, rope_theta=1e6, model_type=model_type, head_dim=absent)
        assert (config.qk_norm, config.qkv_bias, config.head_dim) == (qk_norm, qkv_bias, head_dim)
        assert (config.model_type, config.reward_classes) == (model_type, 0)
    assert read(tmp_path, rope_theta=1e6, model_type=model_type, head_dim=32).head_dim == 32


def test_rope_theta_is_read_at_the_top_level_and_under_rope_parameters(tmp_path):
    assert read(tmp_path, rope_theta=5e5).rope_theta == 5e5
    assert read(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 7e5}).rope_theta == 7e5


def test_end_tokens_come_from_the_generation_config_where_there_is_one(tmp_path):
    """Base and chat models of one family stop on different ids."""
    assert read(tmp_path, rope_theta=1e6).eos_ids == (151645,)
    config = read(tmp_path, {"eos_token_id": [151645, 151643], "pad_token_id": 151643}, rope_theta=1e6)
    assert (config.eos_ids, config.pad_id) == ((151645, 151643), 151643)


def test_a_pad_token_of_zero_is_kept(tmp_path):
    assert read(tmp_path, rope_theta=1e6, pad_token_id=0).pad_id == 0


def test_what_is_written_reads_back_the_same(tmp_path, tiny_config):
    config = dataclasses.replace(tiny_config, rope_theta=1234.5, pad_id=7, dtype="bfloat16", max_positions=99)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    assert Config.from_hf(tmp_path) == config
    assert Config.from_hf(tmp_path, dtype="float32").dtype == "float32"


@pytest.mark.parametrize(
    "switches", [{"qkv_bias": True}, {}, {"qkv_bias": True, "reward_classes": 2}], ids=["qwen2", "llama", "reward"]
)
def test_other_architectures_read_back_the_same(tmp_path, tiny_config, switches):
    config = dataclasses.replace(tiny_config, qk_norm=False, **switches)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    assert Config.from_hf(tmp_path) == config


def test_switches_that_no_architecture_has_together_are_refused(tiny_config):
    with pytest.raises(ValueError, match="qk_norm and qkv_bias are both on"):
        dataclasses.replace(tiny_config, qkv_bias=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gemma2"}, "model_type is 'gemma2'; this code reads 'qwen3', 'qwen2', 'llama'"),
        ({"model_type": ...}, "model_type is None"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is True"),
        ({"model_type": "llama", "attention_bias": True}, "attention_bias is True"),
        ({"model_type": "llama", "mlp_bias": True}, "mlp_bias is True"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope type is 'llama3'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope type is 'yarn'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope type is 'yarn'"),
        ({"rope_theta": ...}, "rope_theta is missing"),
        ({"intermediate_size": ...}, "intermediate_size is missing"),
        ({"num_key_value_heads": 3}, "not a multiple of num_kv_heads=3"),
        ({"head_dim": 7}, "head_dim=7 must be even"),
    ],
)
def test_what_is_not_supported_stops_with_its_field(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, **{"rope_theta": 1e6, **fields})


def test_a_folder_without_config_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json: not found"):
        Config.from_hf(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_damaged_file_is_named(tmp_path, name):
    read(tmp_path, rope_theta=1e6)
    (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=rf"{name}: not JSON"):
        Config.from_hf(tmp_path)
    (tmp_path / name).write_text("[]")
    with pytest.raises(ValueError, match=rf"{name}: must hold a JSON object, not list"):
        Config.from_hf(tmp_path)
