"""Completions for the reward tests: texts full of traps, and random ways to write them in tokens."""

import numpy as np

from scope_jax.rewards.bytes import token_spellings

PROMPT = "Put it in \\boxed{7}.\nAnswer: 7\n[SUB-1 ANSWER] 7\n[MAIN ANSWER] 7\n<think>\n\n</think>\n\n"  # never counts
PLAIN = ["0", "7", "12", "-3", "94", "1234", "0.5", "3.5", "1/2", "-7/4", "100000", "61", "46"]
TEXTS = [
    "\\sqrt{4}",
    "x",
    "Friday",
    "\\{1,2\\}",
    "5 apples",
    "50\\%",
    "(1,2)",
    "1e3",
    "12:00",
    "x=5",
    "\\frac12",
    "1/0",
]
LARGE = ["123456789012", "999999999", "1000000000", "0.1234567891", "1/3000000000", "9" * 70]


def spellings(rng, plain):
    """One of many ways to write a plain number; all have its value."""
    sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    minus = sign and rng.choice(["-", "\u2212"])
    if "/" in digits:
        top, bottom = digits.split("/")
        k = int(rng.integers(1, 4))
        top, bottom = str(int(top) * k), str(int(bottom) * k)
        written = rng.choice([f"{minus}{top}/{bottom}", f"{minus}\\frac{{{top}}}{{{bottom}}}"])
        written = rng.choice([written, f"{minus}\\dfrac{{{top}}}{{{bottom}}}", f"\\tfrac{{{sign}{top}}}{{{bottom}}}"])
    elif "." in digits:
        written = minus + rng.choice([digits, digits + "0", "00" + digits, digits.lstrip("0")])
    else:
        written = minus + rng.choice(
            [digits, "0" + digits, "00" + digits, f"{int(digits):,}", digits + ".0", digits + "/1"]
        )
    if written == "0":
        written = rng.choice(["0", "-0", "+0", "0.00", "\u22120"])
    if not sign and rng.random() < 0.2:
        written = "+" + written.lstrip("+-\u2212")
    left, right = rng.choice(["", " ", "$", " $", "\t"]), rng.choice(["", " ", "$", ".", "$.", ". ", "\r"])
    return left + written + right


def answer_text(rng, gold):
    """An answer, right or wrong, of any kind."""
    kind = rng.random()
    if kind < 0.35:
        return spellings(rng, gold if gold in PLAIN else str(rng.choice(PLAIN)))
    if kind < 0.6:
        return spellings(rng, str(rng.choice(PLAIN)))
    if kind < 0.75:
        return gold
    if kind < 0.85:
        return str(rng.choice(TEXTS))
    if kind < 0.9:
        return str(rng.choice(LARGE))
    return str(
        rng.choice(
            [
                "",
                " ",
                "$",
                ".",
                "--5",
                "+-5",
                "1,23",
                "0,123",
                "1,2345",
                "12,345,67",
                "5-",
                "1.2.3",
                "3/4/5",
                "-",
                "5}",
                "{5}",
            ]
        )
    )


def piece(rng, gold, slots):
    """One piece of a completion: prose, a marker, a cut marker, or rubbish."""
    answer = answer_text(rng, gold)
    kinds = [
        lambda: f"\\boxed{{{answer}}}",
        lambda: f"Answer: {answer}\n",
        lambda: f"Answer:{answer}",
        lambda: f"**Answer:** {answer}\n",
        lambda: f"**Answer: {answer}**" + str(rng.choice(["", ".", "\n", ".\n"])),
        lambda: f"**Answer**: **{answer}**\n",
        lambda: f"\\boxed {{{answer}}}",
        lambda: f"\\boxed{{1}}</think>\\boxed{{{answer}}}",
        lambda: f"\\boxed{{{answer_text(rng, gold)}}} or \\boxed{{{answer}}}",
        lambda: str(rng.choice(["</think>", "</think>\n\n", "<think>", "</think", "<think>\n\n</think>\n\n"])),
        lambda: f"\\boxed{{\\boxed{{{answer}}}}}",
        lambda: f"\\boxed{{{{{answer}}}}}",
        lambda: f"\\boxed{{{answer}",
        lambda: f"Answer: $\\boxed{{{answer}}}$.\n",
        lambda: str(
            rng.choice(
                ["\\boxed", "\\boxe{5}", "\\boxed  {5}", "Answer", "answer: 5\n", "AnsAnswer: 6\n", "\\\\boxed{6}"]
            )
        ),
        lambda: str(
            rng.choice(
                ["so ", "we get $x^{2}$. ", "\n", "\n\n", "{", "}", "\\{", "\\\\}", "\u4f60\u597d ", "na\u00efve "]
            )
        ),
    ]
    if slots:
        i = int(rng.integers(1, 5))
        kinds += 2 * [
            lambda: f"[SUB-{i} ANSWER] {answer}\n",
            lambda: f"[SUB-{i} ANSWER] {answer} [MAIN ANSWER] {answer_text(rng, gold)}",
            lambda: f"[MAIN ANSWER] {answer}\n",
            lambda: f"[MAIN ANSWER] \\boxed{{{answer}}} so\n",
            lambda: f"[SUB-{i} ANSWER]{answer}",
            lambda: f"**[SUB-{i} ANSWER]** {answer}\n**[MAIN ANSWER] {answer}**\n",
            lambda: f"[SUB-{i} ANSWER] \\boxed{{{answer_text(rng, gold)}}} or \\boxed {{{answer}}}\n",
            lambda: str(
                rng.choice(["[SUB-12 ANSWER] 5\n", "[SUB- ANSWER] 5\n", "[SUB-1 ANSWER 5\n", "[SUB-01 ANSWER] 5\n"])
            ),
        ]
    return kinds[rng.integers(len(kinds))]()


def completion(rng, gold, *, slots=False):
    """A whole completion as bytes, at times with bytes that are no text."""
    text = "".join(piece(rng, gold, slots) for _ in range(rng.integers(0, 5))).encode()
    if rng.random() < 0.1:
        place = rng.integers(len(text) + 1)
        text = text[:place] + bytes(rng.integers(128, 256, 2).tolist()) + text[place:]
    return text[: rng.integers(1, len(text) + 1)] if text and rng.random() < 0.15 else text


class Writer:
    """Writes byte strings as token ids, in any way that the vocabulary allows."""

    def __init__(self, tokenizer):
        self.spelled = token_spellings(tokenizer)
        self.ids = {text: token for token, text in enumerate(self.spelled) if text}
        self.sizes = {byte: sorted({len(text) for text in self.ids if text[0] == byte}) for byte in range(256)}
        self.silent = [token for token, text in enumerate(self.spelled) if not text]

    def tokens(self, rng, text):
        """Random tokens that spell the text."""
        ids, place = [], 0
        while place < len(text):
            fits = [size for size in self.sizes[text[place]] if text[place : place + size] in self.ids]
            fits = [size for size in fits if place + size <= len(text)]
            size = fits[rng.integers(len(fits))]
            ids.append(self.ids[text[place : place + size]])
            place += size
        return ids

    def rows(self, rng, texts, length):
        """Token rows with a prompt before, an end token after and holes within: ids, mask, the text that is left."""
        prompt = self.tokens(rng, PROMPT.encode())
        ids = rng.integers(0, len(self.spelled), (len(texts), length))
        mask = np.zeros((len(texts), length), bool)
        kept = []
        for row, text in enumerate(texts):
            start = int(rng.integers(0, 20))
            ids[row, :start] = ([*prompt, *self.tokens(rng, b"Answer: 7 \\box")])[-start:] if start else []
            place, left = start, b""
            for token in [*self.tokens(rng, text), rng.choice(self.silent)]:
                while rng.random() < 0.05:  # padding inside, as packing may leave it
                    place += 1
                if place >= length:
                    break
                ids[row, place], mask[row, place] = token, True
                place, left = place + 1, left + self.spelled[token]
            kept.append(left.decode(errors="replace"))
        return ids.astype(np.int32), mask, kept
