import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from scope_jax import qwen3
from scope_jax.meshes import make_mesh
from scope_jax.qwen3 import hf

HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
Q0 = "model.layers.0.self_attn.q_proj.weight"


def assert_same(left, right):
    """Same structure, dtypes and bits."""

    def check(a, b):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))

    jax.tree.map(check, left, right)


def edit_weights(folder, **changes):
    """Rewrites model.safetensors; a change of None drops the tensor. Dots of a name are written as __."""
    weights = load_file(folder / "model.safetensors")
    for name, value in changes.items():
        name = name.replace("__", ".")
        weights.pop(name) if value is None else weights.update({name: value})
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_save_then_load_gives_the_same_bits(tmp_path, tiny_config, tiny_params, tied, dtype):
    config = dataclasses.replace(tiny_config, tie_embeddings=tied, dtype=dtype, pad_id=5)
    params = jax.tree.map(lambda x: np.asarray(x).astype(dtype), tiny_params)
    if tied:
        del params["lm_head"]
    qwen3.save(tmp_path, config, params)
    loaded_config, loaded = qwen3.load(tmp_path)
    assert loaded_config == config
    assert_same(loaded, params)


@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_other_architectures_come_back_with_the_same_bits(tmp_path, tiny_models, name):
    config, params = tiny_models[name]
    qwen3.save(tmp_path, config, params, max_shard_bytes=10_000)
    loaded_config, loaded = qwen3.load(tmp_path)
    assert loaded_config == config
    assert_same(loaded, params)


def test_biases_are_stored_head_by_head(tmp_path, tiny_models):
    config, params = tiny_models["qwen2"]
    qwen3.save(tmp_path, config, params)
    bias = load_file(tmp_path / "model.safetensors")["model.layers.1.self_attn.k_proj.bias"]
    np.testing.assert_array_equal(bias, np.concatenate(list(params["layers"]["k_bias"][1])))


@pytest.mark.parametrize(
    ("name", "tensor", "value", "message"),
    [
        ("qwen2", "0.self_attn.q_proj.bias", None, r"0\.self_attn\.q_proj\.bias is missing; .* shape \(24,\)"),
        ("qwen2", "1.self_attn.k_proj.bias", np.zeros(13), r"k_proj\.bias has shape \(13,\); .* expects \(12,\)"),
        ("qwen2", "1.self_attn.v_proj.bias", np.zeros((2, 6)), r"v_proj\.bias has shape \(2, 6\)"),
        ("qwen2", "0.self_attn.o_proj.bias", np.zeros(20), r"o_proj\.bias of shape \(20,\) is unknown"),
        ("llama", "0.self_attn.q_proj.bias", np.zeros(24), r"q_proj\.bias of shape \(24,\) is unknown"),
        ("llama", "0.self_attn.q_norm.weight", np.ones(6), r"q_norm\.weight of shape \(6,\) is unknown"),
    ],
)
def test_tensors_of_another_architecture_are_named(tmp_path, tiny_models, name, tensor, value, message):
    qwen3.save(tmp_path, *tiny_models[name])
    edit_weights(tmp_path, **{f"model.layers.{tensor}": value})
    with pytest.raises(ValueError, match=message):
        qwen3.load(tmp_path)


def test_a_language_models_folder_with_a_reward_head_stops_with_its_name(tmp_path, tiny_models):
    qwen3.save(tmp_path, *tiny_models["qwen2"])
    edit_weights(tmp_path, score__0__weight=np.zeros((20, 20)))
    with pytest.raises(ValueError, match=r"score\.0\.weight of shape \(20, 20\) is unknown"):
        qwen3.load(tmp_path)


def test_linear_weights_are_stored_as_outputs_by_inputs(tmp_path, tiny_config, tiny_params):
    """A transposed view given to safetensors is saved in memory order, scrambled, without an error."""
    qwen3.save(tmp_path, tiny_config, tiny_params)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        x = np.linspace(-1, 1, tiny_config.d_model, dtype=np.float32)
        expected = np.einsum("d,dnh->nh", x, tiny_params["layers"]["q"][0])
        np.testing.assert_allclose(file.get_tensor(Q0) @ x, expected.ravel(), atol=1e-6)
        heads = np.linspace(-1, 1, 24, dtype=np.float32)
        expected = np.einsum("nh,nhd->d", heads.reshape(4, 6), tiny_params["layers"]["o"][1])
        out = file.get_tensor("model.layers.1.self_attn.o_proj.weight")
        np.testing.assert_allclose(out @ heads, expected, atol=1e-6)
        assert file.metadata() == {"format": "pt"}


def test_a_large_model_is_cut_into_shards_with_an_index(tmp_path, tiny_config, tiny_params):
    qwen3.save(tmp_path, tiny_config, tiny_params, max_shard_bytes=10_000)
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    assert len(shards) > 3
    sizes = {name: sum(x.nbytes for x in load_file(tmp_path / name).values()) for name in shards}
    assert max(sizes.values()) <= 10_000
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(sizes.values())
    assert set(index["weight_map"].values()) == set(shards)
    assert_same(qwen3.load(tmp_path)[1], tiny_params)


def test_a_tensor_above_the_shard_size_has_a_file_of_its_own(tmp_path, tiny_config, tiny_params):
    qwen3.save(tmp_path, tiny_config, tiny_params, max_shard_bytes=1)
    assert len(list(tmp_path.glob("model-*.safetensors"))) == 3 + 11 * tiny_config.num_layers
    assert_same(qwen3.load(tmp_path)[1], tiny_params)


def test_load_casts_to_the_wanted_dtype_and_leaves_the_activation_dtype(tmp_path, tiny_config, tiny_params):
    config = dataclasses.replace(tiny_config, dtype="bfloat16")
    qwen3.save(tmp_path, config, tiny_params, dtype="bfloat16")
    assert load_file(tmp_path / "model.safetensors")[Q0].dtype == ml_dtypes.bfloat16
    loaded_config, loaded = qwen3.load(tmp_path, dtype="float32")
    assert loaded_config.dtype == "bfloat16"
    assert_same(loaded, jax.tree.map(lambda x: x.astype("bfloat16").astype("float32"), tiny_params))


def test_load_on_a_mesh_cuts_every_parameter(tmp_path, tiny_config, tiny_params):
    config = dataclasses.replace(tiny_config, vocab_size=60)
    params = {**tiny_params, "embed": tiny_params["embed"][:60], "lm_head": tiny_params["lm_head"][:, :60]}
    qwen3.save(tmp_path / "first", config, params)
    _, loaded = qwen3.load(tmp_path / "first", mesh=make_mesh("data=2,fsdp=2,tensor=2"))
    assert_same(loaded, params)
    assert loaded["layers"]["q"].addressable_shards[0].data.shape == (2, 10, 2, 6)
    assert loaded["embed"].addressable_shards[0].data.shape == (30, 10)
    qwen3.save(tmp_path / "second", config, loaded)  # sharded parameters save like whole ones
    first, second = (tmp_path / name / "model.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("model", ["tied_ratio1", "tied_ratio4"])
def test_a_tied_checkpoint_may_ship_its_head_if_it_is_the_embedding(golden, model):
    folder, arrays = golden(model)
    _, expected = qwen3.load(folder)
    embed = arrays[f"weights/{EMBED}"]
    edit_weights(folder, lm_head__weight=embed)
    _, params = qwen3.load(folder)
    assert "lm_head" not in params
    assert_same(params, expected)
    edit_weights(folder, lm_head__weight=embed + 1e-3)
    with pytest.raises(ValueError, match=r"ties the embeddings, but tensor lm_head\.weight differs"):
        qwen3.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm_head__weight": None}, r"tensor lm_head\.weight is missing; .* shape \(41, 20\)"),
        ({"model__norm__weight": None}, r"tensor model\.norm\.weight is missing; .* shape \(20,\)"),
        ({"model__norm__bias": np.zeros(20)}, r"tensor model\.norm\.bias of shape \(20,\) is unknown"),
        (
            {"model__layers__2__input_layernorm__weight": np.zeros(20)},
            r"tensor model\.layers\.2\.input_layernorm\.weight of shape \(20,\) is unknown",
        ),
        (
            {"model__layers__1__self_attn__o_proj__weight": np.zeros((24, 20))},
            r"tensor model\.layers\.1\.self_attn\.o_proj\.weight has shape \(24, 20\); config.json expects \(20, 24\)",
        ),
        (
            {"model__layers__1__mlp__up_proj__weight": np.zeros((30, 20), np.int8)},
            r"tensor model\.layers\.1\.mlp\.up_proj\.weight has dtype int8",
        ),
        (
            {"model__layers__1__mlp__up_proj__weight": np.zeros((30, 20), np.float16)},
            r"up_proj\.weight has dtype float16, its neighbours float32; pass `dtype`",
        ),
    ],
)
def test_a_wrong_tensor_stops_the_load_with_its_name(golden, changes, message):
    folder, _ = golden("untied_ratio2")
    edit_weights(folder, **changes)
    with pytest.raises(ValueError, match=message):
        qwen3.load(folder)


def test_a_folder_without_weights_or_with_a_damaged_file_is_named(golden):
    folder, _ = golden("untied_ratio2")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged or not a safetensors file"):
        qwen3.load(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="holds neither model.safetensors nor"):
        qwen3.load(folder)


def test_an_index_that_does_not_fit_its_shards_is_named(tmp_path, tiny_config, tiny_params):
    qwen3.save(tmp_path, tiny_config, tiny_params, max_shard_bytes=10_000)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    moved = {**content["weight_map"], EMBED: content["weight_map"][HEAD]}
    index.write_text(json.dumps({"weight_map": moved}))
    with pytest.raises(ValueError, match=r"tensor model\.embed_tokens\.weight is missing, but .*index\.json says"):
        qwen3.load(tmp_path)
    index.write_text(json.dumps({"metadata": {}}))
    with pytest.raises(ValueError, match=r"index\.json: field weight_map is missing"):
        qwen3.load(tmp_path)
    index.write_text(json.dumps(content))
    (tmp_path / content["weight_map"][HEAD]).unlink()
    with pytest.raises(FileNotFoundError, match=r"safetensors: not found, but .* names it"):
        qwen3.load(tmp_path)


def test_saving_again_keeps_other_files_and_drops_stale_shards(tmp_path, tiny_config, tiny_params):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model_card.safetensors").write_text("not ours")
    qwen3.save(tmp_path, tiny_config, tiny_params, max_shard_bytes=10_000)
    qwen3.save(tmp_path, tiny_config, tiny_params)
    names = {"config.json", "generation_config.json", "model.safetensors", "model_card.safetensors", "tokenizer.json"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_save_interrupted_while_writing_leaves_the_old_model(tmp_path, tiny_config, tiny_params, monkeypatch):
    qwen3.save(tmp_path, tiny_config, tiny_params)

    def fail(content, path, **_):
        path.write_bytes(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(hf, "save_file", fail)
        with pytest.raises(OSError, match="disk full"):
            qwen3.save(tmp_path, tiny_config, jax.tree.map(lambda x: x + 1, tiny_params))
    assert_same(qwen3.load(tmp_path)[1], tiny_params)
    qwen3.save(tmp_path, tiny_config, tiny_params)
    assert not list(tmp_path.glob(".*"))


def test_a_save_interrupted_while_renaming_leaves_nothing_that_loads(tmp_path, tiny_config, tiny_params, monkeypatch):
    """Old and new shards are never mixed."""
    qwen3.save(tmp_path, tiny_config, tiny_params, max_shard_bytes=10_000)
    renamed = []

    def fail(source, target):
        if len(renamed) == 2:
            raise OSError("killed")
        renamed.append(source.rename(target))

    monkeypatch.setattr(hf.os, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        qwen3.save(tmp_path, tiny_config, jax.tree.map(lambda x: x + 1, tiny_params), max_shard_bytes=10_000)
    with pytest.raises(FileNotFoundError, match=r"config\.json: not found"):
        qwen3.load(tmp_path)


def test_tokenizer_files_are_copied_when_asked(tmp_path, tiny_config, tiny_params):
    source = tmp_path / "source"
    source.mkdir()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: not found"):
        qwen3.save(tmp_path / "out", tiny_config, tiny_params, tokenizer_from=source)
    for name in ("tokenizer.json", "chat_template.jinja", "training_args.bin"):
        (source / name).write_text(name)
    qwen3.save(tmp_path / "out", tiny_config, tiny_params, tokenizer_from=source)
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "chat_template.jinja"
    assert not (tmp_path / "out" / "training_args.bin").exists()


def test_parameters_that_do_not_fit_the_config_are_not_saved(tmp_path, tiny_config, tiny_params):
    wider = dataclasses.replace(tiny_config, d_ff=30)
    with pytest.raises(
        ValueError, match=r"parameter layers/down has shape \(2, 28, 20\); the config expects \(2, 30, 20\)"
    ):
        qwen3.save(tmp_path, wider, tiny_params)
    tied = dataclasses.replace(tiny_config, tie_embeddings=True)
    with pytest.raises(ValueError, match=r"parameter lm_head has shape \(20, 61\); the config expects None"):
        qwen3.save(tmp_path, tied, tiny_params)
    assert not list(tmp_path.iterdir())
