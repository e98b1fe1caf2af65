import jax
import numpy as np
import pytest
from completions import completion
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from scope_jax.rewards import TokenBytes, completion_bytes

view_of = jax.jit(completion_bytes, static_argnames="size")


def texts(view):
    return [bytes(row[real]) for row, real in zip(np.asarray(view.bytes), np.asarray(view.mask), strict=True)]


def test_bytes_are_those_of_the_decoded_completion(tokenizer, table):
    words = ["Answer: 12\n", "naïve − \\boxed{3}", "", "<think> x </think>", "[SUB-1 ANSWER] 5", "  \t\n\n"]
    ids = np.zeros((len(words), 48), np.int32)
    mask = np.zeros((len(words), 48), bool)
    for row, word in enumerate(words):
        tokens = [*tokenizer(word)["input_ids"], tokenizer.eos_token_id]
        ids[row, 5 : 5 + len(tokens)], mask[row, 5 : 5 + len(tokens)] = tokens, True
    decoded = [tokenizer.decode(i[m], skip_special_tokens=True).encode() for i, m in zip(ids, mask, strict=True)]
    assert texts(view_of(ids, mask, table, size=96)) == decoded == [word.encode() for word in words]


def test_prompt_and_padding_never_reach_the_byte_row(table, writer):
    rng = np.random.default_rng(0)
    rows = [completion(rng, "12") for _ in range(64)]
    ids, mask, kept = writer.rows(rng, rows, 160)
    view = view_of(ids, mask, table, size=256)
    assert [text.decode(errors="replace") for text in texts(view)] == kept
    assert not np.asarray(view.unsure).any()
    # Left aligned: the mask is a prefix, and what it hides is zero.
    assert (np.sort(np.asarray(view.mask), axis=1)[:, ::-1] == np.asarray(view.mask)).all()
    assert not np.asarray(view.bytes)[~np.asarray(view.mask)].any()


def test_a_row_is_cut_at_its_size(table, writer):
    rng = np.random.default_rng(1)
    ids, mask, _ = writer.rows(rng, [b"Answer: 123456789"], 40)
    assert texts(view_of(ids, mask, table, size=9)) == [b"Answer: 1"]


def test_bytes_past_the_tables_width_are_unsure(tokenizer, writer):
    narrow = TokenBytes.from_tokenizer(tokenizer, max_bytes=4)
    rng = np.random.default_rng(2)
    text = b"so Answer: [SUB-1 ANSWER] 5"
    ids, mask, _ = writer.rows(rng, [text] * 32, 64)
    view = view_of(ids, mask, narrow, size=len(text))
    known = ~np.asarray(view.unsure)
    assert np.asarray(view.mask).all() and not known.all()
    assert all(
        byte == text[place]
        for row, real in zip(np.asarray(view.bytes), known, strict=True)
        for place, byte in enumerate(row)
        if real[place]
    )


def test_ids_without_text_have_no_bytes(tokenizer, table):
    ids = np.array([[tokenizer.eos_token_id, tokenizer.pad_token_id, 10**6, -1, *tokenizer("x")["input_ids"]]])
    assert texts(view_of(ids, np.ones_like(ids, bool), table, size=8)) == [b"x"]


def test_a_vocabulary_that_is_not_byte_level_is_refused():
    backend = Tokenizer(models.WordLevel({"\u2581the": 0, "x": 1}, unk_token="x"))
    with pytest.raises(ValueError, match="byte-level BPE"):
        TokenBytes.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
