"""A real trained Llama, SmolLM2-135M-Instruct; needs the folder that scripts/make_smollm2.py writes.

    SCOPE_SMOLLM2=models/smollm2 pytest tests/qwen3/test_smollm2.py
"""

import os

import jax
import numpy as np
import pytest

from scope_jax import assemble, qwen3
from scope_jax.data.prompts import encode_prompts, prompt_ids, render_chat
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rewards import TokenBytes, completion_bytes
from scope_jax.rollout import generate

FOLDER = os.environ.get("SCOPE_SMOLLM2", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="SCOPE_SMOLLM2 names no folder; scripts/make_smollm2.py makes one"),
]

NEW = 40
PROMPTS = [
    "A baker fills 12 trays with 24 rolls each and sells 250 rolls. How many rolls are left?",
    "What is the capital of France?",
]
TEXT = "12 * 24 = 288.\n\n  Then 288 - 250 = 38,  so \\boxed{38}.\n\tπ ≈ 3.14159; naïve café, 数学 👍🏽.  It's `x[i]`."


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(FOLDER)


@pytest.fixture(scope="module")
def model():
    return qwen3.load(FOLDER, dtype="float32")


@pytest.fixture(scope="module")
def reference():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")


def test_the_architecture_is_read(model, tokenizer):
    config, params = model
    assert (config.model_type, config.qk_norm, config.qkv_bias, config.tie_embeddings) == ("llama", False, False, True)
    assert (config.head_dim, config.num_heads, config.num_kv_heads, config.rope_theta) == (64, 9, 3, 1e5)
    assert config.vocab_size == len(tokenizer) == 49_152


def test_logits_equal_those_of_transformers_on_padded_prompts(model, tokenizer, reference):
    import torch

    config, params = model
    tokens, mask, _ = encode_prompts(tokenizer, PROMPTS, width=80)
    logits = jax.jit(qwen3.forward, static_argnames="config")(params, config, tokens, segment_ids=mask.astype(np.int32))
    positions = torch.tensor((mask.cumsum(-1) - 1).clip(min=0))
    with torch.no_grad():
        inputs = {"attention_mask": torch.tensor(mask.astype(np.int64)), "position_ids": positions}
        theirs = reference(torch.tensor(tokens.astype(np.int64)), **inputs).logits.numpy()
    difference = np.abs(np.asarray(logits) - theirs)[mask].max()
    print(f"largest difference {difference:.1e}, largest logit {np.abs(theirs[mask]).max():.1f}")
    assert difference < 5e-4


def test_greedy_completions_equal_those_of_transformers(model, tokenizer, reference):
    import torch

    config, params = model
    tokens, mask, _ = encode_prompts(tokenizer, PROMPTS, width=80)
    ends = assemble.end_ids(config, tokenizer)
    options = {"max_new_tokens": NEW, "temperature": 0.0, "eos_ids": ends}
    run = jax.jit(generate, static_argnames=("config", *options))
    rollout = run(params, config, tokens, mask, jax.random.key(0), **options)
    theirs = reference.generate(
        input_ids=torch.tensor(tokens.astype(np.int64)),
        attention_mask=torch.tensor(mask.astype(np.int64)),
        do_sample=False,
        max_new_tokens=NEW,
        eos_token_id=list(ends),
        pad_token_id=config.pad_id,
    ).numpy()[:, tokens.shape[1] :]
    ours = np.asarray(rollout.tokens)[:, tokens.shape[1] :]
    for row in tokenizer.batch_decode(ours, skip_special_tokens=True):
        print(repr(row))
    np.testing.assert_array_equal(ours[:, : theirs.shape[1]], theirs)
    assert "Paris" in tokenizer.decode(ours[1])


def test_the_end_tokens_and_the_chat_format_are_the_models_own(model, tokenizer):
    assert assemble.end_ids(model[0], tokenizer) == (tokenizer.convert_tokens_to_ids("<|im_end|>"),) == (2,)
    text = render_chat(tokenizer, "How many?")
    assert text.endswith("<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(prompt_ids(tokenizer, "How many?")) == text


def test_digits_are_tokens_of_their_own_and_blanks_before_them_stay_together(tokenizer):
    assert tokenizer.tokenize("x = 1234.5") == ["x", "Ġ=", "Ġ", "1", "2", "3", "4", ".", "5"]
    assert tokenizer.tokenize("a:  7") == ["a", ":", "ĠĠ", "7"]


def test_token_bytes_are_the_bytes_of_decoded_text(tokenizer):
    ids = [1, *tokenizer(TEXT, add_special_tokens=False)["input_ids"], 2, *range(3, 3000)]
    tokens = np.array([ids])
    table = TokenBytes.from_tokenizer(tokenizer, max_bytes=32)
    view = completion_bytes(tokens, np.ones_like(tokens, bool), table, size=20_000)
    known = bytes(np.asarray(view.bytes)[0][np.asarray(view.mask & ~view.unsure)[0]])
    assert not view.unsure.any() and known.startswith(TEXT.encode())
    assert known.decode(errors="replace") == tokenizer.decode(ids, skip_special_tokens=True)
