"""The tokenizer that belongs to a checkpoint."""

import pathlib

from transformers import AutoTokenizer, PreTrainedTokenizerBase


def load_tokenizer(folder: str | pathlib.Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a Hugging Face folder, read from that folder alone and never from the network.

    Raises:
      FileNotFoundError: there is no such folder, or it holds no tokenizer.json.
      ValueError: the tokenizer has no chat template, so prompts could not be rendered, or no end token.
    """
    path = pathlib.Path(folder) / "tokenizer.json"
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; expected a Hugging Face model folder")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not found; copy the checkpoint's tokenizer files into the folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # damaged files end in errors of many libraries; the first line says what is wrong
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{folder}: the tokenizer cannot be read: {reason}") from error
    if not tokenizer.chat_template:
        raise ValueError(f"{folder}: no chat template; add the checkpoint's chat_template.jinja")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{folder}/tokenizer_config.json: field eos_token is missing")
    return tokenizer
