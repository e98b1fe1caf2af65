"""How fast answers are checked on the device, and on the host by the verifier and by math-verify, on the same rows.

    python benchmarks/verify_device.py --tokenizer=scope_jax/data/chains_model --rows=384 --length=1024

The host's times include decoding, which the device does not need. math-verify runs in this process, without the
verifier's shortcut for plain numbers. Prints medians and ratios; all three must agree on every row.
"""

import statistics
import time

import jax
import numpy as np
from absl import app, flags
from transformers import AutoTokenizer

from scope_jax.rewards import RIGHT, UNDECIDED, AnswerKey, TokenBytes, verify_main
from scope_jax.verify import Result, Verifier, extract_answer
from scope_jax.verify.symbolic import read_expression, symbolic_check

_TOKENIZER = flags.DEFINE_string("tokenizer", "scope_jax/data/chains_model", "Folder of a byte-level BPE tokenizer.")
_ROWS = flags.DEFINE_integer("rows", 384, "Completions in a batch.")
_LENGTH = flags.DEFINE_integer("length", 1024, "Tokens of each row.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each; the median counts.")


def batch(tokenizer, rng):
    """Rows that fill their length with working and end in a number, right in half of them."""
    filler = tokenizer("a=34+27=61.\n\nWait, let me redo that.\n\n", add_special_tokens=False)["input_ids"]
    golds = [str(rng.integers(10_000)) for _ in range(_ROWS.value)]
    ids = np.empty((_ROWS.value, _LENGTH.value), np.int32)
    for row, gold in enumerate(golds):
        answer = gold if row % 2 else str(int(gold) + 1)
        text = rng.choice([f"\nSo it is \\boxed{{{answer}}}.", f"\nAnswer: {int(answer):,}"])
        end = [*tokenizer(str(text), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids[row] = [*np.resize(filler, _LENGTH.value - len(end)), *end]
    return ids, golds


def median_seconds(check):
    """Median time of a check that has run once before."""
    check()
    times = []
    for _ in range(_REPEATS.value):
        start = time.perf_counter()
        check()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(_):
    tokenizer = AutoTokenizer.from_pretrained(_TOKENIZER.value)
    ids, golds = batch(tokenizer, np.random.default_rng(0))
    table, key = TokenBytes.from_tokenizer(tokenizer), AnswerKey.from_strings(golds)
    tokens, mask = jax.device_put(ids), jax.device_put(np.ones_like(ids, bool))

    def on_device():
        return jax.block_until_ready(verify_main(tokens, mask, table, key))

    def decoded():
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    def by_math_verify():
        read_expression.cache_clear()  # no run may profit from the one before
        answers = map(extract_answer, decoded())
        return [symbolic_check(answer, gold) is Result.right for answer, gold in zip(answers, golds, strict=True)]

    with Verifier() as verifier:
        verdicts = np.asarray(on_device())
        right = (verdicts == RIGHT).tolist()
        if not right == by_math_verify() == verifier.verify_batch(decoded(), golds):
            raise SystemExit("The device and the host disagree.")
        device = median_seconds(on_device)
        host = {
            "verifier": median_seconds(lambda: verifier.verify_batch(decoded(), golds)),
            "math-verify": median_seconds(by_math_verify),
        }
    print(f"{_ROWS.value} rows of {_LENGTH.value} tokens on {jax.devices()[0].device_kind}")
    print(f"undecided on the device: {(verdicts == UNDECIDED).mean():.1%}")
    print(f"{'device':<12} {_ROWS.value / device:12,.0f} rows/s")
    for name, seconds in host.items():
        print(f"{name:<12} {_ROWS.value / seconds:12,.0f} rows/s   device is {seconds / device:,.1f} times as fast")


if __name__ == "__main__":
    app.run(main)
