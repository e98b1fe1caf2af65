"""From a config to problems: what is trained on, what is held out, and what is said of a bad name."""

import importlib.resources
import json

import pytest
from ml_collections import FrozenConfigDict

from configs import base, chains
from scope_jax import assemble
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


def test_without_workers_nobody_is_asked():
    with assemble.host_verifier(config_with(**{"verifier.workers": 0})) as open_verifier:
        assert open_verifier is None
