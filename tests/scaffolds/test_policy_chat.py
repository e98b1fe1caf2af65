"""A model in this process answers like an endpoint, many threads in one batch."""

import concurrent.futures
import importlib.resources

import jax
import numpy as np
import pytest

from scope_jax import qwen3
from scope_jax.data import chains
from scope_jax.data.prompts import prompt_ids
from scope_jax.endpoint import EndpointError
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rollout import generate
from scope_jax.scaffolds import policy_chat
from scope_jax.scaffolds.policy_chat import PolicyChat

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
PROBLEMS = [problem.problem for problem in chains.generate_problems(6, seed=2, min_steps=2, max_steps=3)]


def turn(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def chat():
    with PolicyChat(MODEL, mesh="data=1,fsdp=-1", batch=3) as policy:
        yield policy


def test_greedy_replies_are_those_of_generate_however_they_are_batched(chat, monkeypatch):
    tokenizer = load_tokenizer(MODEL)
    model, params = qwen3.load(MODEL)
    rows = [prompt_ids(tokenizer, text) for text in PROBLEMS]
    width = max(map(len, rows))
    tokens = np.array([[0] * (width - len(row)) + row for row in rows], np.int32)
    mask = np.array([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    rollout = jax.jit(
        lambda p, t, m: generate(
            p, model, t, m, jax.random.key(5), max_new_tokens=120, temperature=0.0, eos_ids=model.eos_ids
        )
    )(params, tokens, mask)
    found, sampled = jax.device_get((rollout.tokens, rollout.mask))
    expected = [tokenizer.decode(found[i][sampled[i]], skip_special_tokens=True) for i in range(len(rows))]
    assert any("=" in text for text in expected) and len(set(expected)) == len(expected)

    batches = []
    answer = chat._answer
    monkeypatch.setattr(chat, "_answer", lambda requests: (batches.append(len(requests)), answer(requests)))
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda text: chat.chat(turn(text), max_tokens=120), PROBLEMS))
    assert replies == expected
    assert chat.batch == 8 and max(batches) > 1 and sum(batches) == 6  # 3, rounded up to the mesh's 8 parts


def test_a_conversation_that_does_not_fit_is_refused_like_an_endpoint_would(chat):
    with pytest.raises(EndpointError, match="--max_prompt_tokens=4096"):
        chat.chat(turn("1+1 " * 3000))


def test_an_error_of_the_device_reaches_whoever_waits_and_the_next_is_served(chat, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(policy_chat, "_generate", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            chat.chat(turn(PROBLEMS[0]), max_tokens=120)
    assert "=" in chat.chat(turn(PROBLEMS[0]), max_tokens=120)


def test_requests_of_other_sampling_wait_for_a_batch_of_their_own(chat, monkeypatch):
    kinds = []

    def answer(requests):
        kinds.append({request.temperature for request in requests})
        for request in requests:
            request.reply.set_result("done")

    monkeypatch.setattr(chat, "_answer", answer)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: chat.chat(turn("x"), temperature=float(i % 2)), range(8)))
    assert replies == ["done"] * 8
    assert all(len(kind) == 1 for kind in kinds) and {0.0} in kinds and {1.0} in kinds
