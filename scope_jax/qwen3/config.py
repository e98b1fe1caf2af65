"""Architecture of a dense Qwen3, Qwen2 or Llama model, read from and written to Hugging Face's `config.json`."""

import dataclasses
import json
import pathlib

import jax.numpy as jnp


# Model type by (qk_norm, qkv_bias), and the class of a language model of it.
MODEL_TYPES = {(True, False): "qwen3", (False, True): "qwen2", (False, False): "llama"}
LANGUAGE_MODELS = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
# What the fields of `config.json` that change the forward pass may be.
SUPPORTED = {
    "qwen3": {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False},
    "qwen2": {"hidden_act": "silu", "use_sliding_window": False},
    "llama": {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
}
REWARD_MODEL, REWARD_CLASSES = "Qwen2ForProcessRewardModel", 2  # a wrong step, a right one


@dataclasses.dataclass(frozen=True)
class Config:
    """Static shape of one dense model. Hashable, so that `jit` takes it as a static argument.

    Qwen2 and Llama are Qwen3 but for two switches: neither has a norm of queries and keys, and Qwen2 has a bias on
    queries, keys and values.
    """

    vocab_size: int  # V: rows of the embedding
    d_model: int  # D: width of the residual stream
    num_layers: int  # L
    num_heads: int  # N: query heads
    num_kv_heads: int  # K: key/value heads; N is a multiple of K
    head_dim: int  # H: apart from d_model / num_heads
    d_ff: int  # F: width of the gated feed-forward layer
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    tie_embeddings: bool = False  # the output head is the transposed embedding
    max_positions: int = 40_960
    eos_ids: tuple[int, ...] = ()  # ends of a completion, from the generation config where there is one
    pad_id: int = 0
    dtype: str = "float32"  # activations and matrix products; norms, softmax and logits stay in float32
    remat: bool = True  # recompute a layer's activations in the backward pass
    qk_norm: bool = True  # a norm on each head's queries and keys: Qwen3
    qkv_bias: bool = False  # a bias on queries, keys and values: Qwen2
    reward_classes: int = 0  # classes of a process reward model's head; 0: a language model, with an output head

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads={self.num_heads} is not a multiple of num_kv_heads={self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: rotary embeddings turn pairs")
        if (self.qk_norm, self.qkv_bias) not in MODEL_TYPES:
            raise ValueError("qk_norm and qkv_bias are both on; no architecture that is read or written has both")

    @property
    def compute_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    @property
    def model_type(self) -> str:
        """Hugging Face's name of the architecture."""
        return MODEL_TYPES[self.qk_norm, self.qkv_bias]

    @classmethod
    def from_hf(cls, folder: str | pathlib.Path, *, dtype: str | None = None) -> "Config":
        """Reads `config.json` (and `generation_config.json`, which knows all end tokens) of a Hugging Face folder.

        Raises:
          FileNotFoundError: the folder holds no config.json.
          ValueError: the architecture is not a dense Qwen3, Qwen2 or Llama, a field is missing, or a file is no JSON;
            names the file and field.
        """
        path = pathlib.Path(folder) / "config.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path}: not found; expected a Hugging Face model folder")
        hf = _read_json(path)
        model_type = hf.get("model_type")
        if model_type not in LANGUAGE_MODELS:
            known = ", ".join(map(repr, LANGUAGE_MODELS))
            raise ValueError(f"{path}: field model_type is {model_type!r}; this code reads {known}")
        for field, wanted in SUPPORTED[model_type].items():
            if hf.get(field, wanted) not in (wanted, None):
                raise ValueError(f"{path}: field {field} is {hf[field]!r}; only {wanted!r} is supported")
        if set(hf.get("layer_types") or ()) - {"full_attention"}:
            raise ValueError(f"{path}: field layer_types is {hf['layer_types']}; only 'full_attention' is supported")
        rope = hf.get("rope_parameters") or {}
        scaling = hf.get("rope_scaling") or {}
        rope_type = rope.get("rope_type") or scaling.get("rope_type") or scaling.get("type") or "default"
        if rope_type != "default":
            raise ValueError(f"{path}: rope type is {rope_type!r}; only 'default' is supported")
        theta = rope.get("rope_theta", hf.get("rope_theta"))
        if theta is None:
            raise ValueError(f"{path}: rope_theta is missing, both at the top level and under rope_parameters")
        generation = path.with_name("generation_config.json")
        generation = _read_json(generation) if generation.is_file() else {}
        eos_ids = _first(generation.get("eos_token_id"), hf.get("eos_token_id"), ())
        eos_ids = (eos_ids,) if isinstance(eos_ids, int) else tuple(eos_ids)
        qk_norm, qkv_bias = next(switches for switches, name in MODEL_TYPES.items() if name == model_type)
        try:
            heads = hf["num_attention_heads"]
            # As transformers reads a config without it.
            head_dim = hf.get("head_dim") or (128 if model_type == "qwen3" else hf["hidden_size"] // heads)
            return cls(
                vocab_size=hf["vocab_size"],
                d_model=hf["hidden_size"],
                num_layers=hf["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=hf["num_key_value_heads"],
                head_dim=head_dim,
                d_ff=hf["intermediate_size"],
                rope_theta=float(theta),
                rms_norm_eps=hf["rms_norm_eps"],
                tie_embeddings=hf.get("tie_word_embeddings", False),
                max_positions=hf.get("max_position_embeddings", 40_960),
                eos_ids=eos_ids,  # base and chat models of one family stop on different ids
                pad_id=_first(hf.get("pad_token_id"), generation.get("pad_token_id"), *eos_ids[-1:], 0),
                dtype=dtype or hf.get("dtype") or hf.get("torch_dtype") or "float32",
                qk_norm=qk_norm,
                qkv_bias=qkv_bias,
                reward_classes=REWARD_CLASSES if REWARD_MODEL in (hf.get("architectures") or ()) else 0,
            )
        except KeyError as error:
            raise ValueError(f"{path}: field {error.args[0]} is missing") from error

    def to_hf(self) -> dict:
        """The same architecture as the content of a Hugging Face `config.json`."""
        return {
            "architectures": [REWARD_MODEL if self.reward_classes else LANGUAGE_MODELS[self.model_type]],
            "model_type": self.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.d_model,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.d_ff,
            **SUPPORTED[self.model_type],
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_theta": self.rope_theta, "rope_type": "default"},
            "use_cache": True,
            "tie_word_embeddings": self.tie_embeddings,
            "eos_token_id": list(self.eos_ids) or None,
            "pad_token_id": self.pad_id,
            "dtype": self.dtype,
        }


def _read_json(path: pathlib.Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); copy the file from the checkpoint again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: must hold a JSON object, not {type(found).__name__}")
    return found


def _first(*values):
    """The first value that is there."""
    return next(value for value in values if value is not None)
