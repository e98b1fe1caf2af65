"""From a config to problems: what is trained on, what is held out, and what is said of a bad name."""

import dataclasses
import importlib.resources
import json

import jax.numpy as jnp
import pytest
from ml_collections import FrozenConfigDict

from configs import base, chains
from scope_jax import assemble, qwen3
from scope_jax.data.records import Problem
from scope_jax.meshes import make_mesh
from scope_jax.qwen3.tokenizer import load_tokenizer

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
ROW = {"id": "1", "problem": "What is 2 + 3?", "answer": "5"}


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


def config_with(**fields):
    c = chains.get_config("scope")
    c.data.chains.train, c.data.chains.eval = 6, 5
    c.update_from_flattened_dict(fields)
    return FrozenConfigDict(c)


def test_held_out_chains_are_none_of_the_trained_ones(tokenizer):
    train, test = assemble.load_tables(config_with(), tokenizer)
    assert (len(train.problems), len(test.problems)) == (6, 5)
    assert not {p.problem for p in train.problems} & {p.problem for p in test.problems}


def test_chains_are_as_long_as_the_config_says(tokenizer):
    fields = {"data.chains.train": 40, "data.chains.min_steps": 2, "data.chains.max_steps": 3}
    train, _ = assemble.load_tables(config_with(**fields), tokenizer)
    assert {problem.problem.count("=") for problem in train.problems} == {2, 3}


def test_a_prepared_folder_is_trained_on_by_its_train_split_and_measured_by_its_test_split(
    tmp_path, tokenizer, monkeypatch
):
    asked = []

    def load_problems(source, name, *, split, skip_bad):
        asked.append((source, name, split, skip_bad))
        return [Problem("1", "What is 2 + 3?", "5")], []

    monkeypatch.setattr(assemble, "load_problems", load_problems)
    assemble.load_tables(config_with(**{"data.train": str(tmp_path), "data.eval": str(tmp_path)}), tokenizer)
    assert asked == [("tfds", str(tmp_path), "train", False), ("tfds", str(tmp_path), "test", False)]


def test_a_completion_ends_at_the_models_tokens_and_at_the_tokenizers_own(tokenizer):
    model, own = qwen3.load(MODEL)[0], tokenizer.eos_token_id
    assert assemble.end_ids(dataclasses.replace(model, eos_ids=(7, 5)), tokenizer) == (7, 5, own)
    assert assemble.end_ids(dataclasses.replace(model, eos_ids=(own, 5)), tokenizer) == (own, 5)
    assert assemble.end_ids(dataclasses.replace(model, eos_ids=()), tokenizer) == (own,)
    mute = load_tokenizer(MODEL)
    mute.eos_token = None
    assert assemble.end_ids(dataclasses.replace(model, eos_ids=(7,)), mute) == (7,)
    with pytest.raises(ValueError, match="neither the model nor the tokenizer names an end token"):
        assemble.end_ids(dataclasses.replace(model, eos_ids=()), mute)


def test_a_policy_has_the_precision_and_layout_of_its_config(tokenizer):
    for remat, name in ((True, "model.dtype"), (False, "model.param_dtype")):
        config = config_with(**{name: "bfloat16", "model.remat": remat})
        policy = assemble.load_policy(config, make_mesh("data=4,tensor=2"), tokenizer, max_subs=3)
        assert (policy.model.dtype, policy.model.remat) == (config.model.dtype, config.model.remat)
        assert policy.params["embed"].dtype == config.model.param_dtype and policy.shards == 4
        assert tokenizer.eos_token_id in policy.model.eos_ids
        rows = policy.place(jnp.zeros((8, 2)))
        assert {shard.data.shape for shard in rows.addressable_shards} == {(2, 2)}


def test_every_seed_of_a_run_has_the_same_problems(tokenizer):
    one, _ = assemble.load_tables(config_with(seed=1), tokenizer)
    two, _ = assemble.load_tables(config_with(seed=2), tokenizer)
    assert one.problems == two.problems


def test_without_an_evaluation_set_the_training_file_is_measured(tokenizer):
    train, test = assemble.load_tables(config_with(**{"data.train": "word_problems"}), tokenizer)
    assert test is train and len(train.problems) >= 20


def test_files_are_named_and_their_bad_lines_counted(tmp_path, tokenizer, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n{oops\n")
    fields = {"data.train": "chains", "data.eval": str(path)}
    with pytest.raises(ValueError, match=r"rows\.jsonl:2"):
        assemble.load_tables(config_with(**fields), tokenizer)
    _, test = assemble.load_tables(config_with(**fields, **{"data.skip_bad": True}), tokenizer)
    assert [p.id for p in test.problems] == ["1"]
    assert "1 bad lines skipped" in capsys.readouterr().out


def test_prompts_that_are_too_long_are_dropped_and_counted(tmp_path, tokenizer, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"id": "2", "problem": "What is 2 + 3? " * 40}) + "\n")
    fields = {"data.train": str(path), "rollout.max_prompt_tokens": 64, "rollout.max_scaffold_tokens": 64}
    train, _ = assemble.load_tables(config_with(**fields), tokenizer)
    assert [p.id for p in train.problems] == ["1"]
    assert "1 of 2 problems dropped, longer than rollout.max_prompt_tokens=64: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data.train": ""}, "config.data.train is empty"),
        ({"data.train": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"data.chains.eval": 0}, "config.data.chains.eval=0 leaves no problems"),
        ({"data.chains.train": 0}, "config.data.chains.train=0 leaves no problems"),
    ],
)
def test_a_field_that_names_nothing_is_said(tokenizer, fields, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        assemble.load_tables(config_with(**fields), tokenizer)


def test_a_run_without_a_model_is_told_which_flag_is_missing():
    with pytest.raises(ValueError, match="--config.model.path=FOLDER"):
        assemble.open_tokenizer(FrozenConfigDict(base.get_config()))


def test_the_host_verifier_is_opened_once_at_need_and_closed_at_the_end():
    with assemble.host_verifier(config_with(**{"verifier.workers": 1})) as open_verifier:
        verifier = open_verifier()
        assert open_verifier() is verifier
        assert verifier.check_answers(["1/2"], ["0.5"])[0].name == "right"
    with pytest.raises(Exception):
        verifier.check_answers(["1/2"], ["0.5"])


def test_the_host_verifier_takes_its_workers_and_time_from_the_config_and_starts_none_unasked(monkeypatch):
    opened = []

    class Counted:
        def __init__(self, workers, *, timeout):
            opened.append((workers, timeout, self))

        def close(self):
            opened.remove(next(entry for entry in opened if entry[2] is self))

    monkeypatch.setattr(assemble, "Verifier", Counted)
    with assemble.host_verifier(config_with(**{"verifier.workers": 3, "verifier.timeout": 1.5})) as open_verifier:
        assert not opened
        assert open_verifier() is open_verifier()
        assert [entry[:2] for entry in opened] == [(3, 1.5)]
    assert not opened


def test_without_workers_nobody_is_asked():
    with assemble.host_verifier(config_with(**{"verifier.workers": 0})) as open_verifier:
        assert open_verifier is None
