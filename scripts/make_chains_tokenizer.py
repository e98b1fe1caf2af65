"""Trains the embedded task's tokenizer: byte-level BPE with Qwen's word splitting (one token a digit) and ChatML.

    python scripts/make_chains_tokenizer.py --output=scope_jax/data/chains_model
"""

import json
import pathlib

import numpy as np
from absl import app, flags
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from scope_jax.data import chains, prompts

_OUTPUT = flags.DEFINE_string("output", "scope_jax/data/chains_model", "Folder that the tokenizer is written to.")
_VOCABULARY = flags.DEFINE_integer("vocabulary", 384, "Number of tokens, the 256 bytes and the special ones included.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the text it is trained on.")

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (PAD, START, END)
PLAIN_ADDED = ("<think>", "</think>")  # as in Qwen3: single tokens, kept when special ones are skipped

# Contractions, words, single digits, punctuation with its line breaks, spaces: the splitting that Qwen models use.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def corpus(seed: int, size: int = 3000):
    """Prompts and worked solutions of the task, plain and scaffolded."""
    rng = np.random.default_rng(seed)
    for i in range(size):
        chain = chains.sample_chain(rng, steps=int(rng.integers(2, 9)), hard_share=0.5)
        problem = chains.to_problem(chain, str(i))
        yield "user\n" + prompts.plain_prompt(problem, prompts.BARE)
        yield "assistant\n" + prompts.scaffolded_prompt(problem, prompts.BARE)
        for scaffolded in (False, True):
            yield chains.worked_solution(chain, rng, chains.Manner(), scaffolded=scaffolded)


def main(_):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY.value - len(SPECIAL) - len(PLAIN_ADDED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(_SEED.value), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in PLAIN_ADDED])
    output = pathlib.Path(_OUTPUT.value)
    output.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(output / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "bos_token": None,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    (output / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    print(f"{tokenizer.get_vocab_size()} tokens -> {output}")


if __name__ == "__main__":
    app.run(main)
