"""From a config to the judge that the stages call."""

import jax.numpy as jnp
import numpy as np
import pytest
from endpoint_server import serve
from ml_collections import FrozenConfigDict
from test_llm import honest

from configs import base
from scope_jax import judges
from scope_jax.data.records import Problem
from scope_jax.rollout import Rollout


class Letters:
    """A tokenizer whose ids are code points."""

    def decode(self, ids, *, skip_special_tokens):
        assert skip_special_tokens
        return "".join(map(chr, ids))


def rollout_of(texts, width=64):
    tokens = np.array([[ord(c) for c in text.ljust(width, "#")] for text in texts], np.int32)
    mask = np.arange(width) < np.array([len(text) for text in texts])[:, None]
    rows = jnp.asarray(mask)
    logprobs = jnp.where(rows, -1.0, 0.0)
    return Rollout(tokens=jnp.asarray(tokens), mask=rows, logprobs=logprobs, segment_ids=rows.astype(jnp.int32))


def config_with(**fields):
    c = base.get_config()
    c.update_from_flattened_dict({f"judge.{name}": value for name, value in fields.items()})
    return FrozenConfigDict(c)


def test_an_llm_judge_reads_its_config_and_keeps_what_it_pays_for_in_the_workdir(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "k-1")
    problems = [Problem(f"p{i}", f"q{i}", str(i)) for i in range(3)]
    texts = ["useful a\n\nerror \u00e9 \u2603", "useful, but the answer is wrong", "redundant x"]
    with serve(honest) as server:
        fields = {"kind": "llm", "url": server.url, "model": "m", "key_variable": "JUDGE_KEY", "extra": '{"seed": 5}'}
        config = config_with(**fields, max_tokens=77, max_steps=4)
        judge = judges.make_judge(config, table=None, tokenizer=Letters(), mesh=None, workdir=tmp_path)
        labels, mask, failed = judge(rollout_of(texts), lambda: np.array([[1.0], [0.0], [1.0]]), problems)
        requests = len(server.requests)
        judge(rollout_of(texts), lambda: np.array([True, False, True]), problems)
        assert len(server.requests) == requests == 2  # the wrong row is not asked about, nor anything twice
        body = next(r for r in server.requests if "q0" in r["messages"][1]["content"])
        assert (body["model"], body["max_tokens"], body["seed"]) == ("m", 77, 5)
        assert "error \u00e9 \u2603" in body["messages"][1]["content"]
        assert server.headers[0]["Authorization"] == "Bearer k-1"
    np.testing.assert_array_equal(labels, [[0, 4, 0, 0], [0] * 4, [2, 0, 0, 0]])
    np.testing.assert_array_equal(mask.sum(axis=1), [2, 0, 1])
    assert not failed.any() and (tmp_path / "judge_cache" / "labels.sqlite").exists()


def test_the_cache_may_stand_elsewhere(tmp_path):
    config = config_with(kind="llm", url="http://localhost:1/v1", model="m", cache=str(tmp_path / "shared"))
    judges.make_judge(config, table=None, tokenizer=Letters(), mesh=None, workdir=tmp_path / "run")
    assert (tmp_path / "shared" / "labels.sqlite").exists() and not (tmp_path / "run").exists()


def test_settings_of_the_endpoint_are_those_of_the_config():
    fields = {"timeout": 3.0, "concurrency": 2, "retries": 9}
    settings = judges.settings_of(config_with(**fields, url="u", model="m").judge)
    assert (settings.timeout, settings.concurrency, settings.retries) == (3.0, 2, 9)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_steps_past_the_limit_are_merged_never_dropped(limit):
    parts = judges.make_split(limit)("a \u00e9\n\nb\n\nc \u2603\n\nd")
    assert len(parts) == min(limit, 4)
    assert "".join("".join(parts).split()) == "a\u00e9bc\u2603d"
