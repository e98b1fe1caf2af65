"""A small byte-level BPE tokenizer with Qwen's habits, and its device table."""

import pytest
from completions import PROMPT, Writer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from scope_jax.rewards import TokenBytes

SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"


@pytest.fixture(scope="session")
def tokenizer():
    """One token a digit, markers merged with what stands around them, special and plain added tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    corpus = [PROMPT, "so $\\boxed{\\frac{3}{4}}$. Answer: x\n\n[SUB-2 ANSWER] y\n [SUB-12 ANSWER] we get }{ ]\n"] * 4
    trainer = trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    backend.train_from_iterator(corpus, trainer)
    backend.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("<|im_end|>", special=True)])
    backend.add_tokens([AddedToken("<think>", special=False), AddedToken("Final Answer: \\boxed{", special=False)])
    backend.add_tokens([AddedToken("5}.\n", special=False), AddedToken("</think>", special=False)])
    # Several markers in one token, in both orders.
    backend.add_tokens([AddedToken("\\boxed{1}</think>\\boxed{", special=False), AddedToken("} or \\boxed{", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")


@pytest.fixture(scope="session")
def table(tokenizer):
    return TokenBytes.from_tokenizer(tokenizer, max_bytes=24)


@pytest.fixture(scope="session")
def writer(tokenizer):
    return Writer(tokenizer)
