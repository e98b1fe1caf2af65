"""Hugging Face checkpoints in and out, tensor by tensor, through one table of names."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Leaf, Params, describe
from scope_jax.qwen3.sharding import param_shardings

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)

# (Hugging Face name, leaf, input axes). A linear layer is stored there as [outputs, inputs] and here as inputs then
# outputs, each possibly several axes; its bias has 0 input axes; None: the same array in both. {} is the layer.
NAMES = (
    (EMBED, "embed", None),
    ("model.layers.{}.input_layernorm.weight", "layers/attn_norm", None),
    ("model.layers.{}.self_attn.q_proj.weight", "layers/q", 1),
    ("model.layers.{}.self_attn.k_proj.weight", "layers/k", 1),
    ("model.layers.{}.self_attn.v_proj.weight", "layers/v", 1),
    ("model.layers.{}.self_attn.q_proj.bias", "layers/q_bias", 0),
    ("model.layers.{}.self_attn.k_proj.bias", "layers/k_bias", 0),
    ("model.layers.{}.self_attn.v_proj.bias", "layers/v_bias", 0),
    ("model.layers.{}.self_attn.q_norm.weight", "layers/q_norm", None),
    ("model.layers.{}.self_attn.k_norm.weight", "layers/k_norm", None),
    ("model.layers.{}.self_attn.o_proj.weight", "layers/o", 2),
    ("model.layers.{}.post_attention_layernorm.weight", "layers/mlp_norm", None),
    ("model.layers.{}.mlp.gate_proj.weight", "layers/gate", 1),
    ("model.layers.{}.mlp.up_proj.weight", "layers/up", 1),
    ("model.layers.{}.mlp.down_proj.weight", "layers/down", 1),
    ("model.norm.weight", "final_norm", None),
    (HEAD, "lm_head", 1),
    ("score.0.weight", "reward/inner", 1),  # 1 is the ReLU between
    ("score.0.bias", "reward/inner_bias", 0),
    ("score.2.weight", "reward/outer", 1),
    ("score.2.bias", "reward/outer_bias", 0),
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One leaf and the tensors that hold it: one a layer, or one alone."""

    leaf: str
    tensors: tuple[str, ...]
    stacked: bool
    inputs: int | None
    shape: tuple[int, ...]  # of one tensor, as it is here
    hf_shape: tuple[int, ...]  # of one tensor, as it is there

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor if self.inputs is None else tensor.T.reshape(self.shape)

    def write(self, array: np.ndarray) -> np.ndarray:
        # safetensors writes the buffer as it lies in memory: a transposed view would be saved scrambled.
        return np.ascontiguousarray(array if self.inputs is None else array.reshape(self.hf_shape[::-1]).T)


def entries(config: Config) -> list[Entry]:
    """The leaves of a model in the order of `NAMES`, each with its tensors' names and shapes."""
    leaves = _flatten(describe(config))
    found = []
    for name, leaf, inputs in NAMES:
        if leaf not in leaves:
            continue  # a tied model has no head, a Llama no biases
        stacked = "{}" in name
        shape = leaves[leaf].shape[1:] if stacked else leaves[leaf].shape
        hf_shape = shape
        if inputs is not None:
            hf_shape = (math.prod(shape[inputs:]), math.prod(shape[:inputs]))[: 1 if inputs == 0 else 2]
        tensors = tuple(name.format(i) for i in range(config.num_layers)) if stacked else (name,)
        found.append(Entry(leaf, tensors, stacked, inputs, shape, hf_shape))
    return found


def load(
    folder: str | pathlib.Path, *, mesh: Mesh | None = None, dtype: str | jnp.dtype | None = None
) -> tuple[Config, Params]:
    """Reads a Hugging Face folder; the host never holds more than about one stacked array.

    Args:
      folder: holds config.json and model.safetensors, or model.safetensors.index.json and its shards.
      mesh: places each array cut over this mesh by the sharding rules; on the default device when None.
      dtype: dtype of the arrays; as in the files when None. The dtype of activations is `Config.dtype`, not this.

    Raises:
      FileNotFoundError: config.json, the weights or a shard is missing.
      ValueError: a tensor is unknown, missing, mis-shaped or of another dtype than its layer neighbours; a tied
        checkpoint ships a head that is not the embedding; a file is damaged. Names the tensor or file.
    """
    folder = pathlib.Path(folder)
    config = Config.from_hf(folder)
    dtype = None if dtype is None else jnp.dtype(dtype)
    shardings = None if mesh is None else _flatten(param_shardings(config, mesh))
    files = _locate(folder)
    params: Params = {}
    with contextlib.ExitStack() as stack:
        opened = {path: stack.enter_context(_open(path)) for path in sorted(set(files.values()))}
        tensors = {name: opened[path] for name, path in files.items()}
        table = entries(config)
        _check_tensors(folder, config, table, tensors)
        for entry in table:
            array = _read_leaf(folder, entry, tensors, dtype)
            if shardings is None:
                array = jnp.asarray(array)
            else:
                array = jax.make_array_from_callback(array.shape, shardings[entry.leaf], array.__getitem__)
            *outer, last = entry.leaf.split("/")
            (params.setdefault(outer[0], {}) if outer else params)[last] = array
    return config, params


def save(
    folder: str | pathlib.Path,
    config: Config,
    params: Params,
    *,
    tokenizer_from: str | pathlib.Path | None = None,
    dtype: str | jnp.dtype | None = None,
    max_shard_bytes: int = 4_000_000_000,
) -> None:
    """Writes a Hugging Face folder that `transformers` and `load` read. Other files in the folder stay.

    Files are written under temporary names first; config.json goes before the first is renamed and comes back last, so
    that an interrupted save leaves the old model or one that no one can load, never a mixture.
    With several processes all must call this; the first one writes.

    Args:
      folder: made if need be.
      config: the architecture.
      params: its parameters, sharded or not.
      tokenizer_from: folder whose tokenizer files are copied along.
      dtype: dtype of the tensors; as in `params` when None.
      max_shard_bytes: a new file starts when the next tensor would exceed this.

    Raises:
      ValueError: the parameters do not have the shapes of `config`; names the array.
      FileNotFoundError: `tokenizer_from` holds no tokenizer.json.
    """
    folder = pathlib.Path(folder)
    dtype = None if dtype is None else jnp.dtype(dtype)
    leaves, table = _flatten(params), entries(config)
    _check_leaves(config, leaves)
    if tokenizer_from is not None and not (pathlib.Path(tokenizer_from) / "tokenizer.json").is_file():
        raise FileNotFoundError(f"{pathlib.Path(tokenizer_from) / 'tokenizer.json'}: not found")
    writes = jax.process_index() == 0
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*.partial"):  # of an interrupted save
            left.unlink()
    itemsize = {leaf: (dtype or array.dtype).itemsize for leaf, array in leaves.items()}
    shards = _plan_shards([(e, i, itemsize[e.leaf]) for e in table for i in range(len(e.tensors))], max_shard_bytes)
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        content = {}
        for entry, layer in shard:
            array = leaves[entry.leaf][layer] if entry.stacked else leaves[entry.leaf]
            tensor = entry.write(_to_host(array).astype(dtype or array.dtype))
            content[entry.tensors[layer]] = tensor
            weight_map[entry.tensors[layer]] = file
            total += tensor.nbytes
        if writes:
            save_file(content, _partial(folder / file), metadata={"format": "pt"})
    if writes:
        ends = {"eos_token_id": list(config.eos_ids) or None, "pad_token_id": config.pad_id}
        texts = {"generation_config.json": ends}
        if len(shards) > 1:
            texts[INDEX] = {"metadata": {"total_size": total}, "weight_map": weight_map}
        texts["config.json"] = config.to_hf()
        _commit(folder, sorted(set(weight_map.values())), texts, tokenizer_from)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("qwen3.save")


def _locate(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Which file holds each tensor."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        with _open(single) as file:
            return dict.fromkeys(file.keys(), single)
    if not index.is_file():
        raise FileNotFoundError(f"{folder}: holds neither {SINGLE} nor {INDEX}; convert other formats to safetensors")
    weight_map = json.loads(index.read_text(encoding="utf-8")).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{index}: field weight_map is missing")
    held = {}
    for file in sorted(set(weight_map.values())):
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder / file}: not found, but {INDEX} names it; copy the missing shard")
        with _open(folder / file) as shard:
            held[file] = set(shard.keys())
    for name, file in weight_map.items():
        if name not in held[file]:
            raise ValueError(f"{folder / file}: tensor {name} is missing, but {INDEX} says it is here")
    return {name: folder / file for name, file in weight_map.items()}


def _open(path: pathlib.Path) -> safe_open:
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged or not a safetensors file ({error}); copy it again") from error


def _check_tensors(folder: pathlib.Path, config: Config, table: list[Entry], tensors: dict) -> None:
    """Compares every name and shape with the architecture before any data is read."""
    expected = {name: entry.hf_shape for entry in table for name in entry.tensors}
    found = {name: tuple(file.get_slice(name).get_shape()) for name, file in tensors.items()}
    if HEAD in found and (config.tie_embeddings or config.reward_classes):
        expected[HEAD] = (config.vocab_size, config.d_model)  # a copy, or left over from the model it was tuned from
    for name, shape in found.items():
        if name not in expected:
            raise ValueError(f"{folder}: tensor {name} of shape {shape} is unknown; config.json describes none such")
    for name, shape in expected.items():
        if name not in found:
            raise ValueError(f"{folder}: tensor {name} is missing; config.json expects it with shape {shape}")
        if found[name] != shape:
            raise ValueError(f"{folder}: tensor {name} has shape {found[name]}; config.json expects {shape}")
    if HEAD in found and config.tie_embeddings and not config.reward_classes:
        embed, head = tensors[EMBED].get_tensor(EMBED), tensors[HEAD].get_tensor(HEAD)
        if not np.array_equal(embed, head):
            raise ValueError(f"{folder}: config.json ties the embeddings, but tensor {HEAD} differs from {EMBED}")


def _read_leaf(folder: pathlib.Path, entry: Entry, tensors: dict, dtype) -> np.ndarray:
    """One leaf on the host, its layers stacked."""
    out = None
    for layer, name in enumerate(entry.tensors):
        tensor = tensors[name].get_tensor(name)
        if not jnp.issubdtype(tensor.dtype, jnp.floating):
            raise ValueError(f"{folder}: tensor {name} has dtype {tensor.dtype}; only floating point is supported")
        if out is None:
            found = tensor.dtype
            out = np.empty((len(entry.tensors), *entry.shape), dtype or found)
        if dtype is None and tensor.dtype != found:
            raise ValueError(f"{folder}: tensor {name} has dtype {tensor.dtype}, its neighbours {found}; pass `dtype`")
        out[layer] = entry.read(tensor)
    return out if entry.stacked else out[0]


def _check_leaves(config: Config, leaves: dict) -> None:
    expected = _flatten(describe(config))
    for leaf in sorted(expected.keys() | leaves.keys()):
        wanted = expected[leaf].shape if leaf in expected else None
        shape = leaves[leaf].shape if leaf in leaves else None
        if wanted != shape:
            raise ValueError(f"parameter {leaf} has shape {shape}; the config expects {wanted}")


def _plan_shards(tensors: list[tuple[Entry, int, int]], limit: int) -> list[list[tuple[Entry, int]]]:
    """Cuts the tensors, in order, into files of at most `limit` bytes (a tensor above it has a file of its own)."""
    shards, size = [[]], 0
    for entry, layer, itemsize in tensors:
        tensor_bytes = math.prod(entry.shape) * itemsize
        if shards[-1] and size + tensor_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append((entry, layer))
        size += tensor_bytes
    return shards


def _commit(folder: pathlib.Path, weights: list[str], texts: dict[str, dict], tokenizer_from) -> None:
    """Renames the written files into place, and removes an older model's that the new one has no use for."""
    for file, content in texts.items():
        _partial(folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "config.json").unlink(missing_ok=True)
    for old in [folder / SINGLE, folder / INDEX, *folder.glob("model-*-of-*.safetensors")]:
        old.unlink(missing_ok=True)
    if tokenizer_from is not None and not folder.samefile(tokenizer_from):
        for file in TOKENIZER_FILES:
            if (pathlib.Path(tokenizer_from) / file).is_file():
                shutil.copyfile(pathlib.Path(tokenizer_from) / file, folder / file)
    for file in [*weights, *texts]:  # config.json is the last of them
        os.replace(_partial(folder / file), folder / file)


def _partial(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.partial")


def _to_host(array: jax.Array) -> np.ndarray:
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def _flatten(tree) -> dict:
    """Leaves by their path, such as "layers/q"."""
    pairs = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, Leaf))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in pairs}
