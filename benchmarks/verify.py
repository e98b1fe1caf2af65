"""Answers checked on the device and on the host, the same rows in one run: speed, decided share, every disagreement.

    python benchmarks/verify.py --rows=5120 --batch=1024 --length=512

Rows come from `answer_corpus`, which knows by construction what is right. Three verifiers judge them: the device kernel
(from token ids), the host verifier, and math-verify as it comes, with LaTeX between dollar signs. The host's times
include decoding and finding the answer, which the device does itself. Prints medians and ratios.
"""

import collections
import logging
import statistics
import time

import jax
import numpy as np
from absl import app, flags
from answer_corpus import MIXTURES, corpus
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
from math_verify import verify as math_verify
from transformers import AutoTokenizer

from scope_jax.rewards import RIGHT, UNDECIDED, AnswerKey, TokenBytes, verify_main
from scope_jax.verify import Result, Verifier, extract_answer

_TOKENIZER = flags.DEFINE_string("tokenizer", "scope_jax/data/chains_model", "Folder of a byte-level BPE tokenizer.")
_ROWS = flags.DEFINE_integer("rows", 5120, "Completions of each mixture.")
_BATCH = flags.DEFINE_integer("batch", 1024, "Rows that the device checks at once.")
_LENGTH = flags.DEFINE_integer("length", 512, "Tokens of each row.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each; the median counts.")
_MIXTURES = flags.DEFINE_list("mixtures", list(MIXTURES), "Mixtures of `answer_corpus`.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the corpus.")
LISTED = 40  # disagreements shown of each kind


def token_rows(tokenizer, rows, rng):
    """Completions that fill their length with working and end in their answer."""
    filler = tokenizer("a=34+27=61.\n\nWait, let me redo that.\n\n", add_special_tokens=False)["input_ids"]
    ids = np.empty((len(rows), _LENGTH.value), np.int32)
    for i, row in enumerate(rows):
        text = rng.choice([f"\nSo it is $\\boxed{{{row.answer}}}$.", f"\nAnswer: {row.answer}\n"])
        end = [*tokenizer(str(text), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids[i] = [*np.resize(filler, _LENGTH.value - len(end)), *end]
    return ids


def by_math_verify(answer, gold):
    """math-verify's own verdict."""
    try:
        expected, given = (
            parse(f"${text}$", [LatexExtractionConfig(), ExprExtractionConfig()], parsing_timeout=None)
            for text in (gold, answer)
        )
        return bool(math_verify(expected, given, timeout_seconds=None))
    except Exception as error:  # what it cannot take is its answer too
        return type(error).__name__


def seconds(check):
    start = time.perf_counter()
    check()
    return time.perf_counter() - start


def report(name, rows, verdicts, results, others):
    """Prints the shares and every disagreement of one mixture; returns how many the device and the host have."""
    decided = verdicts != UNDECIDED
    right = verdicts == RIGHT
    print(f"\n{name}: {len(rows)} rows, decided on the device {decided.mean():.2%}")
    shapes = collections.Counter(row.shape for row in rows)
    known = collections.Counter(row.shape for row, d in zip(rows, decided, strict=True) if d)
    print("  by shape: " + ", ".join(f"{shape} {known[shape] / count:.0%}" for shape, count in shapes.items()))
    settled = [result in (Result.right, Result.wrong) for result in results]
    host = [result is Result.right for result in results]
    kinds = {
        "device and host verifier": [d and s and r != h for d, s, r, h in zip(decided, settled, right, host, strict=True)],
        "device and the truth": [d and r != row.right for d, r, row in zip(decided, right, rows, strict=True)],
        "host verifier and the truth": [h != row.right for h, row in zip(host, rows, strict=True)],
        "device and math-verify alone": [d and r != o for d, r, o in zip(decided, right, others, strict=True)],
        "math-verify alone and the truth": [o != row.right for o, row in zip(others, rows, strict=True)],
    }
    for kind, differs in kinds.items():
        print(f"  {kind} disagree on {sum(differs)}")
        listed = collections.Counter(
            (row.shape, row.answer, row.gold, row.right) for row, differ in zip(rows, differs, strict=True) if differ
        )
        for (shape, answer, gold, is_right), times in listed.most_common(LISTED):
            print(f"    {answer!r} for {gold!r} ({shape}, {'right' if is_right else 'wrong'}, {times} times)")
        if len(listed) > LISTED:
            print(f"    and {len(listed) - LISTED} more")
    return sum(kinds["device and host verifier"]) + sum(kinds["device and the truth"])


def main(_):
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    rng = np.random.default_rng(_SEED.value)
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER.value)
    table, batch = TokenBytes.from_tokenizer(tokenizer), _BATCH.value
    wrong, measured = 0, None
    with Verifier() as verifier:
        for name in _MIXTURES.value:
            rows = corpus(name, _ROWS.value // batch * batch, _SEED.value)
            ids = token_rows(tokenizer, rows, rng)
            golds = [row.gold for row in rows]
            key = AnswerKey.from_strings(golds)

            def device(first, ids=ids, key=key):
                part = slice(first, first + batch)
                real = np.ones((batch, _LENGTH.value), bool)
                return verify_main(ids[part], real, table, jax.tree.map(lambda x: x[part], key))

            verdicts = np.concatenate([np.asarray(device(first)) for first in range(0, len(rows), batch)])
            texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
            results = verifier.check_batch(texts, golds)
            others = [by_math_verify(extract_answer(text) or "", gold) for text, gold in zip(texts, golds, strict=True)]
            wrong += report(name, rows, verdicts, results, others)
            measured = measured or name == "math" and (ids[:batch], golds[:batch], device)

        if measured:
            ids, golds, device = measured

            def on_host():
                texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
                return [by_math_verify(extract_answer(text) or "", gold) for text, gold in zip(texts, golds, strict=True)]

            times = collections.defaultdict(list)
            for _ in range(_REPEATS.value):  # in turn, so that a noisy moment meets both
                times["device"].append(seconds(lambda: jax.block_until_ready(device(0))))
                times["math-verify"].append(seconds(on_host))
            ours, theirs = (statistics.median(times[name]) for name in ("device", "math-verify"))
            print(f"\n{batch} rows of {_LENGTH.value} tokens, mixture math, on {jax.devices()[0].device_kind}")
            print(f"device      {batch / ours:10,.0f} rows/s")
            print(f"math-verify {batch / theirs:10,.0f} rows/s; the device is {theirs / ours:,.0f} times as fast")
    if wrong:
        raise SystemExit(f"The device is wrong, or differs from the host, on {wrong} rows.")


if __name__ == "__main__":
    app.run(main)
