import json
import re

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from scope_jax.qwen3 import tokenizer as tokenizer_module
from scope_jax.qwen3.tokenizer import load_tokenizer

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def write_tokenizer(folder, **settings):
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "<|im_start|>": 2, "<|im_end|>": 3}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def test_the_chat_template_is_found_in_the_config_and_in_its_own_file(tmp_path):
    write_tokenizer(tmp_path, chat_template=TEMPLATE)
    chat = [{"role": "user", "content": "ab"}]
    assert load_tokenizer(tmp_path).apply_chat_template(chat, tokenize=False) == "<|im_start|>ab<|im_end|>"
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(tokenizer.apply_chat_template(chat, tokenize=False)) == [2, 0, 1, 3]
    assert tokenizer.eos_token_id == 3


def test_a_folder_without_tokenizer_is_named_and_the_network_is_not_asked(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: not found"):
        load_tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        load_tokenizer(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_damaged_file_is_one_line_that_names_the_folder(tmp_path, name):
    write_tokenizer(tmp_path, chat_template=TEMPLATE)
    (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))}: the tokenizer cannot be read: .+$"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("error", "reason"), [(OSError("first\nsecond"), "first"), (AssertionError(), "AssertionError")]
)
def test_a_library_error_of_many_lines_or_none_is_one_line_and_the_network_is_not_asked(
    tmp_path, monkeypatch, error, reason
):
    class Library:
        @staticmethod
        def from_pretrained(folder, *, local_files_only):
            assert local_files_only
            raise error

    write_tokenizer(tmp_path)
    monkeypatch.setattr(tokenizer_module, "AutoTokenizer", Library)
    with pytest.raises(ValueError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the tokenizer cannot be read: {reason}"


def test_a_tokenizer_without_chat_template_or_end_token_is_refused(tmp_path):
    write_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="no chat template"):
        load_tokenizer(tmp_path)
    write_tokenizer(tmp_path, chat_template=TEMPLATE, eos_token="a")
    assert load_tokenizer(tmp_path).eos_token_id == 0  # an end token too
    write_tokenizer(tmp_path, chat_template=TEMPLATE, eos_token=None)
    with pytest.raises(ValueError, match="field eos_token is missing"):
        load_tokenizer(tmp_path)
