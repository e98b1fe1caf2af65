"""A plain-Python reading of the answer rules, on decoded text. Slow, literal, and sharing no code with the package."""

from fractions import Fraction

RIGHT, WRONG, OPEN = "right", "wrong", "open"  # open: the rules leave it to algebra
BLANK = [" ", "\t", "\r", "\n", "$"]


def starts(text, marker):
    """Every place where a marker stands."""
    if marker not in text:
        return []
    return [i for i in range(len(text)) if text[i : i + len(marker)] == marker]


def inside_box(text, begin):
    """What stands between the brace before `begin` and the one that closes it, or None."""
    level, i = 1, begin
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        if text[i] == "{":
            level += 1
        if text[i] == "}":
            level -= 1
        if level == 0:
            return text[begin:i]
        i += 1
    return None


def counted(text):
    """What stands behind the thinking; None if the thinking never ends."""
    while starts(text, "</think>"):
        text = text[starts(text, "</think>")[0] + 8 :]
    return None if starts(text, "<think>") else text


def box_contents(text):
    """Where the content of each box begins, in order."""
    return sorted([i + 7 for i in starts(text, "\\boxed{")] + [i + 8 for i in starts(text, "\\boxed {")])


def in_box(text, begin):
    """The content of a box; of boxes in boxes, that of the last inner one."""
    content = inside_box(text, begin)
    while content is not None and box_contents(content):
        content = inside_box(content, box_contents(content)[-1])
    return content


def not_bold(line):
    """A line without the asterisks, spaces and periods that markdown leaves around an answer."""
    while line and line[0] in [" ", "\t", "\r", "*"]:
        line = line[1:]
    while line and line[-1] in [" ", "\t", "\r", "*", "."]:
        line = line[:-1]
    return line


def main_text(text, ended, box="last"):
    """The text that the main answer is read from; None if the completion gives none."""
    text = counted(text)
    if text is None:
        return None
    boxes = box_contents(text)
    lines = sorted([i + 7 for i in starts(text, "Answer:")] + [i + 9 for i in starts(text, "Answer**:")])
    if box == "first" and boxes:
        return in_box(text, boxes[0])
    if boxes and (not lines or boxes[-1] > lines[-1]):
        return in_box(text, boxes[-1])
    if not lines:
        return None
    rest = text[lines[-1] :]
    if "\n" in rest:
        return not_bold(rest.split("\n")[0])
    return not_bold(rest) if ended else None


def slot_text(text, marker, ended, box="last"):
    """The text that a slot's answer is read from; None if the completion gives none."""
    text = counted(text)
    every = ["[MAIN ANSWER]"] + [f"[SUB-{i} ANSWER]" for i in range(100)] + [f"[SUB-0{i} ANSWER]" for i in range(10)]
    if text is None or not starts(text, marker):
        return None
    rest = text[starts(text, marker)[-1] + len(marker) :]
    stops = [i for stop in ["\n", *every] for i in starts(rest, stop)]
    line = rest[: min(stops)] if stops else rest
    boxes = box_contents(line)
    if boxes:
        return in_box(line, boxes[0] if box == "first" else boxes[-1])
    return not_bold(line) if stops or ended else None


def bare(text):
    """The answer without blanks and dollars around it and without periods behind it."""
    while text and text[0] in BLANK:
        text = text[1:]
    while text and text[-1] in [*BLANK, "."]:
        text = text[:-1]
    return text


def is_digits(text):
    return text != "" and all(c in "0123456789" for c in text)


def number(text):
    """Exact value of an integer, a decimal or a simple fraction; None for anything else."""
    sign = 1
    if text[:1] in ("+", "-", "\u2212"):
        sign = 1 if text[0] == "+" else -1
        text = text[1:]
    for command in ("\\frac{", "\\dfrac{", "\\tfrac{"):
        if text.startswith(command) and text.endswith("}") and text.count("}{") == 1:
            top, bottom = text[len(command) : -1].split("}{")
            if top.startswith("-"):
                sign, top = -sign, top[1:]
            return (
                sign * Fraction(int(top), int(bottom)) if is_digits(top) and is_digits(bottom) and int(bottom) else None
            )
    if text.count("/") == 1:
        top, bottom = text.split("/")
        return sign * Fraction(int(top), int(bottom)) if is_digits(top) and is_digits(bottom) and int(bottom) else None
    whole, point, places = text.partition(".")
    if point and not is_digits(places):
        return None
    if "," in whole:
        groups = whole.split(",")
        if not all(is_digits(g) for g in groups) or groups[0][0] == "0" or len(groups[0]) > 3:
            return None
        if any(len(g) != 3 for g in groups[1:]):
            return None
        whole = "".join(groups)
    if not (is_digits(whole) or (whole == "" and point)):
        return None
    return sign * (Fraction(int(whole or "0")) + (Fraction(int(places), 10 ** len(places)) if point else 0))


def verdict(text, gold):
    """Compares the text that an answer is read from with the gold answer."""
    if text is None or bare(text) == "":
        return WRONG
    given, expected = bare(text), bare(gold)
    if given == expected:
        return RIGHT
    a, b = number(given), number(expected)
    if a is None or b is None:
        return OPEN
    return RIGHT if a == b else WRONG


def main_verdict(text, gold, ended=True, box="last"):
    return verdict(main_text(text, ended, box), gold)


def slot_verdicts(text, golds, ended=True, box="last"):
    markers = [f"[SUB-{i} ANSWER]" for i in range(1, len(golds))] + ["[MAIN ANSWER]"]
    return [verdict(slot_text(text, m, ended, box), g) for m, g in zip(markers, golds, strict=True)]
