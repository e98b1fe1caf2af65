"""Writes golden arrays: tiny random models (Qwen3, Qwen2, Llama, a reward model) and their logits in transformers.

    python scripts/make_golden_models.py --output=tests

Needs torch (CPU). Each file holds one model: its config.json, its weights under their Hugging Face names, and for each
padding layout the tokens, the segment ids (0 is padding) and the logits, of tokens or of a step's two classes.
"""

import pathlib
import types

import numpy as np
import torch
import transformers
from absl import app, flags

_OUTPUT = flags.DEFINE_string("output", "tests", "The .npz files go to qwen3/golden and judges/golden below it.")

SHARED = {"max_position_embeddings": 64, "eos_token_id": 3, "pad_token_id": 0, "attn_implementation": "eager"}
MODELS = {
    "tied_ratio1": {
        "vocab_size": 37,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 24,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    "untied_ratio2": {
        "vocab_size": 41,
        "hidden_size": 20,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "intermediate_size": 30,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "tied_ratio4": {
        "vocab_size": 53,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "intermediate_size": 20,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    },
    "untied_odd_sizes": {
        "vocab_size": 43,
        "hidden_size": 15,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 10,
        "intermediate_size": 27,
        "rms_norm_eps": 1e-2,  # large enough to show
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
    },
    "qwen2_tied_ratio3": {
        "model_type": "qwen2",
        "vocab_size": 45,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 22,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    "qwen2_untied_ratio2": {
        "model_type": "qwen2",
        "vocab_size": 39,
        "hidden_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 26,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "llama_tied_ratio3": {
        "model_type": "llama",
        "vocab_size": 47,
        "hidden_size": 18,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 28,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
    },
    "llama_untied_own_head_dim": {
        "model_type": "llama",
        "vocab_size": 35,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "intermediate_size": 21,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    },
}
REWARD_MODEL = {
    "model_type": "qwen2",
    "vocab_size": 41,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 28,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
SEPARATOR_ID = 7  # that of the reward model; about every third token
# Rows of a batch as lengths of their segments, and where the padding goes.
LAYOUTS = {
    "unpadded": ([[9], [9]], "right"),
    "left_padded": ([[9], [5], [1]], "left"),
    "right_padded": ([[9], [5], [1]], "right"),
    "packed": ([[4, 3, 2], [1, 6], [7]], "right"),
}
WIDTH = 9


class Qwen2ForProcessRewardModel(transformers.Qwen2PreTrainedModel):
    """The layout of Qwen2.5-Math-PRM, whose class comes with its checkpoint and not with transformers."""

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.model = transformers.Qwen2Model(config)
        self.score = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
        self.post_init()

    def forward(self, *args, **options):
        return types.SimpleNamespace(logits=self.score(self.model(*args, **options).last_hidden_state))


def random_model(fields: dict, generator: torch.Generator) -> transformers.PreTrainedModel:
    """A model whose weights, norms and biases included, are all large enough to move the logits."""
    config = transformers.AutoConfig.for_model(**{"model_type": "qwen3", **SHARED, **fields})
    if fields is REWARD_MODEL:
        model = Qwen2ForProcessRewardModel(config).eval()
        model.config.architectures = [type(model).__name__]
    else:
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + 0.3 * noise if "norm" in name else 0.25 * noise)
    return model


@torch.no_grad()
def run_layout(model, segments: list[list[int]], side: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Tokens, segment ids and logits (0 at padding) of one batch.

    A packed row has no counterpart in transformers: each of its segments is run by itself.
    """
    vocabulary, reward = model.config.vocab_size, hasattr(model, "score")
    tokens, segment_ids = (np.zeros((len(segments), WIDTH), np.int32) for _ in range(2))
    logits = np.zeros((len(segments), WIDTH, 2 if reward else vocabulary), np.float32)
    for row, lengths in enumerate(segments):
        start = WIDTH - sum(lengths) if side == "left" else 0
        for segment, length in enumerate(lengths, start=1):
            columns = slice(start, start + length)
            tokens[row, columns] = rng.integers(vocabulary, size=length)
            if reward:
                tokens[row, columns] = np.where(rng.random(length) < 0.35, SEPARATOR_ID, tokens[row, columns])
            segment_ids[row, columns] = segment
            if max(map(len, segments)) > 1:
                logits[row, columns] = model(torch.tensor(tokens[row : row + 1, columns])).logits[0].numpy()
            start += length
    if max(map(len, segments)) == 1:
        real = torch.tensor(segment_ids)
        positions = (real.cumsum(-1) - 1).clamp(min=0)
        out = model(torch.tensor(tokens), attention_mask=real, position_ids=positions).logits.numpy()
        logits = np.where(segment_ids[..., None] > 0, out, 0).astype(np.float32)
    return {"tokens": tokens, "segment_ids": segment_ids, "logits": logits}


def main(_):
    models = {f"qwen3/golden/{name}": fields for name, fields in MODELS.items()}
    models["judges/golden/prm"] = REWARD_MODEL
    for seed, (name, fields) in enumerate(models.items()):
        path = pathlib.Path(_OUTPUT.value) / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        model = random_model(fields, torch.Generator().manual_seed(seed))
        arrays = {"config.json": np.array(model.config.to_json_string(use_diff=True))}
        for tensor, value in model.state_dict().items():
            if not (tensor == "lm_head.weight" and fields["tie_word_embeddings"]):
                arrays[f"weights/{tensor}"] = value.numpy()
        rng = np.random.default_rng(seed)
        for layout, (segments, side) in LAYOUTS.items():
            for field, value in run_layout(model, segments, side, rng).items():
                arrays[f"{layout}/{field}"] = value
        np.savez_compressed(path, **arrays)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    app.run(main)
