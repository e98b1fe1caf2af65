import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from scope_jax.data.prompts import (
    BARE,
    EXAMPLES,
    MATH,
    STYLES,
    PromptStyle,
    encode_prompts,
    plain_prompt,
    render_chat,
    scaffolded_prompt,
    solved_turns,
)
from scope_jax.data.records import Problem, SubQuestion
from scope_jax.verify.extract import extract_answer, extract_slots

CHAIN = Problem(
    id="1",
    problem="a=34+27. b=a-15. c=b+48. What is c?",
    answer="94",
    scaffold=(SubQuestion("What is a?", "61"), SubQuestion("What is b?", "46")),
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def byte_tokenizer(**settings):
    """One token a byte, ChatML's special tokens, and a post-processor that adds a start token of its own."""
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    start = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", start)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"chat_template": TEMPLATE} | settings)


TOKENIZER = byte_tokenizer(eos_token="<|im_end|>", pad_token="<|endoftext|>")


def test_bare_prompts_are_the_problem_and_its_numbered_sub_questions():
    assert plain_prompt(CHAIN, BARE) == "a=34+27. b=a-15. c=b+48. What is c?"
    assert scaffolded_prompt(CHAIN, BARE) == "a=34+27. b=a-15. c=b+48. What is c?\n1. What is a?\n2. What is b?"


def test_math_prompts_name_the_box_or_every_slot():
    assert "\\boxed{}" in plain_prompt(CHAIN, MATH)
    text = scaffolded_prompt(CHAIN, MATH)
    places = [text.index(part) for part in (CHAIN.problem, "1. What is a?", "2. What is b?")]
    places += [text.index(f"[{slot} ANSWER]") for slot in ("SUB-1", "SUB-2", "MAIN")]
    assert places == sorted(places)
    assert "[SUB-3 ANSWER]" not in text


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_a_problem_without_scaffold_keeps_its_plain_prompt(style):
    bare = dataclasses.replace(CHAIN, scaffold=())
    assert scaffolded_prompt(bare, style) == plain_prompt(bare, style)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=3, max_size=3), st.sampled_from(list(STYLES.values())))
def test_no_answer_ever_reaches_a_prompt(answers, style):
    """Whatever the answers are, the prompts are the same: none of them is read (copying is guarded against)."""
    hidden = tuple(SubQuestion(step.question, answer) for step, answer in zip(CHAIN.scaffold, answers[:2], strict=True))
    other = dataclasses.replace(CHAIN, scaffold=hidden, answer=answers[2])
    assert plain_prompt(other, style) == plain_prompt(CHAIN, style)
    assert scaffolded_prompt(other, style) == scaffolded_prompt(CHAIN, style)


def test_a_style_of_ones_own_keeps_its_braces():
    style = PromptStyle(plain="Box it: \\boxed{}.", slots="Use {x} and\n{slots}")
    assert plain_prompt(CHAIN, style).endswith("\n\nBox it: \\boxed{}.")
    assert "Use {x} and\n[SUB-1 ANSWER]" in scaffolded_prompt(CHAIN, style)


def test_the_chat_template_gets_a_user_turn_with_thinking_switched_off():
    """Qwen3 answers enable_thinking=False with an empty think block; leaving the switch out would start a long one."""
    expected = "<|im_start|>user\nHi {{ x }}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert render_chat(TOKENIZER, "Hi {{ x }}") == expected


def test_examples_are_earlier_turns_solved_in_the_form_that_is_asked_for():
    plain, scaffolded = (solved_turns(EXAMPLES, scaffolded=flag) for flag in (False, True))
    text = render_chat(TOKENIZER, scaffolded_prompt(CHAIN, EXAMPLES), scaffolded)
    turns = [part.split("<|im_end|>")[0] for part in text.split("<|im_start|>")[1:]]
    assert [turn.split("\n")[0] for turn in turns] == ["user", "assistant"] * 3
    assert turns[4] == "user\n" + scaffolded_prompt(CHAIN, EXAMPLES)
    for example, (asked, reply) in zip(EXAMPLES.examples, scaffolded, strict=True):
        golds = [*(step.answer for step in example.problem.scaffold), example.problem.answer]
        assert extract_slots(reply, len(golds) - 1) == golds
        assert all(step.question in asked for step in example.problem.scaffold)
    for example, (asked, reply) in zip(EXAMPLES.examples, plain, strict=True):
        assert asked == example.problem.problem and extract_answer(reply) == example.problem.answer
    width = len(TOKENIZER(text, add_special_tokens=False)["input_ids"])
    tokens, mask, _ = encode_prompts(TOKENIZER, [scaffolded_prompt(CHAIN, EXAMPLES)], width=width + 3, before=scaffolded)
    assert TOKENIZER.decode(tokens[0][mask[0]]) == text


def test_a_tokenizer_without_chat_template_is_refused():
    with pytest.raises(ValueError, match="no chat template"):
        encode_prompts(byte_tokenizer(chat_template=None), ["Hi"], width=8)


def test_rows_are_padded_on_the_left_and_hold_the_template_alone():
    """No token is added to those of the template, and padding that shares an id with real tokens stays masked."""
    prompts = ["Hi", "What is 2 + 2? \u2212 caf\u00e9 <|endoftext|>"]
    tokens, mask, too_long = encode_prompts(TOKENIZER, prompts, width=120)
    assert tokens.shape == mask.shape == (2, 120)
    assert (tokens.dtype, mask.dtype, too_long.dtype) == (np.int32, bool, bool)
    assert not too_long.any()
    for row, prompt in enumerate(prompts):
        count = mask[row].sum()
        assert mask[row, 120 - count :].all()
        assert TOKENIZER.decode(tokens[row][mask[row]]) == render_chat(TOKENIZER, prompt)
        assert (tokens[row, : 120 - count] == TOKENIZER.pad_token_id).all()


def test_a_prompt_of_just_the_width_fits_and_a_longer_one_is_flagged_never_cut():
    width = len(TOKENIZER(render_chat(TOKENIZER, "four"), add_special_tokens=False)["input_ids"])
    tokens, mask, too_long = encode_prompts(TOKENIZER, ["four", "fives", "two"], width=width)
    assert too_long.tolist() == [False, True, False]
    assert mask.sum(axis=1).tolist() == [width, 0, width - 1]
    assert (tokens[1] == TOKENIZER.pad_token_id).all()


def test_no_prompts_and_no_padding_token_are_fine():
    tokens, mask, too_long = encode_prompts(byte_tokenizer(), ["Hi"], width=100)
    assert (tokens[~mask] == 0).all()
    assert not too_long.any()
    tokens, mask, too_long = encode_prompts(TOKENIZER, [], width=5)
    assert tokens.shape == mask.shape == (0, 5)
    assert too_long.shape == (0,)
