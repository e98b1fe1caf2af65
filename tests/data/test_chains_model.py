"""The embedded task's tokenizer and warm start: what the experiment rests on."""

import importlib.resources
import json
import pathlib

import jax
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.data import chains, prompts
from scope_jax.data.batches import encode_problems
from scope_jax.qwen3.params import count
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rollout import generate

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
NEW = 128


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


def test_every_digit_is_a_token_of_its_own(tokenizer):
    assert tokenizer.tokenize("907134") == list("907134")
    assert all(not any(c.isdigit() for c in token) for token in tokenizer.get_vocab() if len(token) > 1)


def test_the_chat_template_writes_qwens_turns(tokenizer):
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    turns = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    assert tokenizer.apply_chat_template(chat, tokenize=False) == turns
    opened = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert opened == turns + "<|im_start|>assistant\n"
    quiet = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert quiet == opened + "<think>\n\n</think>\n\n"


@pytest.mark.parametrize("text", ["a=54+7=61.\n\nSo", "[SUB-1 ANSWER] 61", "½ naïve 数学 🙂\t\r\n  x"])
def test_any_text_survives_encoding(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_end_token_is_not_the_padding_token(tokenizer):
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token_id != tokenizer.eos_token_id
    config, _ = qwen3.load(MODEL)
    assert tokenizer.eos_token_id in config.eos_ids


def test_the_checkpoint_is_small_and_of_the_published_layout():
    folder = pathlib.Path(str(MODEL))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6
    published = json.loads((folder / "config.json").read_text())
    assert published["model_type"] == "qwen3" and published["architectures"] == ["Qwen3ForCausalLM"]
    config, params = qwen3.load(MODEL)
    assert count(params) < 1_000_000 and config.num_heads * config.head_dim != config.d_model


@pytest.mark.slow
def test_the_warm_start_knows_the_format_and_mostly_forgets_to_carry(tokenizer):
    """Without these two the task would not show what the method is for."""
    problems = chains.generate_problems(32, seed=123, min_steps=3, max_steps=5, hard_share=0.5)
    table = encode_problems(problems, tokenizer, prompts.BARE, max_prompt_tokens=128, max_scaffold_tokens=256)
    config, params = qwen3.load(MODEL)
    rollout = jax.jit(generate, static_argnames=("config", "samples_per_prompt", "max_new_tokens", "eos_ids"))(
        params, config, table.prompts, table.prompt_mask, jax.random.key(0), samples_per_prompt=4, max_new_tokens=NEW, eos_ids=config.eos_ids
    )  # fmt: skip
    tokens, mask = np.asarray(rollout.tokens), np.asarray(rollout.mask)
    completions = [tokenizer.decode(row[m], skip_special_tokens=True) for row, m in zip(tokens, mask, strict=True)]
    found = {kind: [] for kind in chains.KINDS}
    for kind, right in (pair for text in completions for pair in chains.read_equations(text)):
        found[kind].append(right)
    share = {kind: np.mean(rights) for kind, rights in found.items()}
    assert share["add"] > 0.9 and share["sub"] > 0.9
    assert 0.1 < share["add-carry"] < 0.5 and 0.1 < share["sub-borrow"] < 0.5
    kept = [chains.follows_format(problems[i // 4].problem, text) for i, text in enumerate(completions)]
    assert np.mean(kept) > 0.9
