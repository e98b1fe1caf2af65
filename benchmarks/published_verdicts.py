"""Our verdicts beside published ones, on real completions; writes docs/published_verdicts.md.

    python benchmarks/published_verdicts.py --data=FOLDER

FOLDER holds gsm8k_model_solutions.jsonl (openai/grade-school-math) and math_model_outputs.jsonl (QwenLM/Qwen2.5-Math);
`model_outputs` reads them. Every disagreement is listed with the explanation that EXPLAINED holds for it, or as not
looked at yet. The device's verdicts are counted too: where it decides, it must say what the host says.
"""

import collections
import pathlib

import numpy as np
from absl import app, flags
from model_outputs import GSM8K_MARK, read_model_outputs
from transformers import AutoTokenizer

from scope_jax.data.records import write_text
from scope_jax.rewards import RIGHT, UNDECIDED, AnswerKey, TokenBytes, verify_main
from scope_jax.verify import Result, Verifier, extract_answer

_DATA = flags.DEFINE_string("data", None, "Folder of the two files.", required=True)
_OUTPUT = flags.DEFINE_string("output", "docs/published_verdicts.md", "Page that is written.")
_TOKENIZER = flags.DEFINE_string("tokenizer", "scope_jax/data/chains_model", "Folder of a byte-level BPE tokenizer.")

FILES = ("gsm8k_model_solutions.jsonl", "math_model_outputs.jsonl")
UNIT, ROWS = 4096, 64  # tokens of a row on the device are a multiple of the one; rows at once
# (our answer, gold): why our verdict and the published one differ. Looked at one by one.
EXPLAINED = {
    ("4:30 \\text{ p.m.}", "\\text{4:30 p.m.}"): "the same time of day; the publisher's check kept `4:30` alone",
}


def device_verdicts(outputs, texts):
    """The kernel's verdict on each completion."""
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER.value)
    table, verdicts = TokenBytes.from_tokenizer(tokenizer), []
    encoded = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
    length = -(-max(map(len, encoded)) // UNIT) * UNIT
    for first in range(0, len(texts), ROWS):
        part, golds = encoded[first : first + ROWS], [output.gold for output in outputs[first : first + ROWS]]
        ids, mask = np.zeros((ROWS, length), np.int32), np.zeros((ROWS, length), bool)
        for row, tokens in enumerate(part):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, True
        key = AnswerKey.from_strings([*golds, *["-"] * (ROWS - len(golds))])
        verdicts += np.asarray(verify_main(ids, mask, table, key)).tolist()[: len(part)]
    return verdicts


def compare(path, verifier):
    """The lines of one file's section, and how often device and host differ."""
    outputs = read_model_outputs(path)
    texts = [output.completion.replace(GSM8K_MARK, "\nAnswer: ") for output in outputs]
    results = verifier.check_batch(texts, [output.gold for output in outputs])
    device = device_verdicts(outputs, texts)
    counts = collections.Counter(result.value for result in results)
    ours = [result is Result.right for result in results]
    agree = sum(our == output.published for our, output in zip(ours, outputs, strict=True))
    split = sum(
        verdict != UNDECIDED and (verdict == RIGHT) != our for verdict, our in zip(device, ours, strict=True)
    )
    decided = np.mean([verdict != UNDECIDED for verdict in device])
    lines = [f"## {path.name}", "", f"{len(outputs)} completions: {', '.join(f'{n} {k}' for k, n in counts.most_common())}."]
    lines += [f"Our verdict is the published one on {agree} of them ({agree / len(outputs):.2%})."]
    lines += [f"The device decides {decided:.1%} and differs from the host on {split}.", ""]
    differ = collections.Counter()
    for our, output, text, result in zip(ours, outputs, texts, results, strict=True):
        if our != output.published:
            differ[extract_answer(text) or "", output.gold, output.predicted or "", output.published, result.value] += 1
    if differ:
        lines += ["| answer found | gold | publisher's answer | published | ours | times | why |", "|---|---|---|---|---|---|---|"]
    for (answer, gold, predicted, published, result), times in differ.most_common():
        why = EXPLAINED.get((answer, gold), "not looked at yet")
        cells = [f"`{cell[:80]}`".replace("|", "\\|") if cell else "none" for cell in (answer, gold, predicted)]
        lines.append(f"| {' | '.join(cells)} | {'right' if published else 'wrong'} | {result} | {times} | {why} |")
    return [*lines, ""], split


def main(_):
    lines = ["# Published verdicts beside ours", "", "Written by `benchmarks/published_verdicts.py`. Two publishers' own checks of real model outputs, and this verifier's.", ""]
    split = 0
    with Verifier() as verifier:
        for name in FILES:
            section, differ = compare(pathlib.Path(_DATA.value) / name, verifier)
            lines += section
            split += differ
    write_text(pathlib.Path(_OUTPUT.value), "\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))
    if split:
        raise SystemExit(f"Device and host differ on {split} completions.")


if __name__ == "__main__":
    app.run(main)
