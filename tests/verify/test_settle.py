"""From rollouts to host verdicts: which rows leave the device, when the host is waited for, and what is counted."""

import importlib.resources

import numpy as np
import pytest

from scope_jax.data.records import Problem, SubQuestion
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rewards import RIGHT, UNDECIDED, WRONG
from scope_jax.rollout import Rollout
from scope_jax.verify import Result
from scope_jax.verify.pool import Checks
from scope_jax.verify.settle import make_settle

MODEL = importlib.resources.files("scope_jax.data") / "chains_model"
ROOT = Problem("p", "What is the root of 9?", "\\sqrt{9}")
CHAIN = Problem("q", "What is c?", "64", scaffold=(SubQuestion("a?", "6/2"), SubQuestion("b?", "56")))
SIZE = 80


class Host:
    """Stands where the verifier stands: answers by a table, and notes what it was asked."""

    def __init__(self, results=None):
        self.results, self.asked, self.waited = results or {}, [], False

    def submit(self, given, gold):
        self.asked += zip(given, gold, strict=True)
        host = self

        class Noted(Checks):
            def result(self):
                host.waited = True
                return super().result()

        return Noted([host.results.get(answer, Result.right) for answer in given])


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(MODEL)


def rollout_of(tokenizer, completions, *, prompt="Answer: 1\n", ended=True, pad=0):
    tokens, mask = np.full((len(completions), SIZE), pad, np.int32), np.zeros((len(completions), SIZE), bool)
    before = tokenizer.encode(prompt, add_special_tokens=False)
    for row, completion in enumerate(completions):
        ids = tokenizer.encode(completion, add_special_tokens=False) + [tokenizer.eos_token_id] * ended
        tokens[row, : len(before) + len(ids)] = [*before, *ids]
        mask[row, len(before) : len(before) + len(ids)] = True
    return Rollout(tokens=tokens, mask=mask, logprobs=None, segment_ids=None)


def settle_with(tokenizer, host, **options):
    return make_settle(tokenizer, (tokenizer.eos_token_id,), host and (lambda: host), **options)


def test_undecided_rows_are_handed_to_the_host_and_waited_for_only_when_asked(tokenizer):
    host = Host({"3": Result.wrong})
    rollout = rollout_of(tokenizer, ["Answer: 3", "Answer: 4", "Answer: 5"])
    given = np.array([[UNDECIDED], [RIGHT], [UNDECIDED]], np.int8)
    finish = settle_with(tokenizer, host)(rollout, given, [ROOT] * 3)
    assert host.asked == [("3", "\\sqrt{9}"), ("5", "\\sqrt{9}")] and not host.waited
    verdicts, counts = finish()
    assert host.waited and verdicts.tolist() == [[WRONG], [RIGHT], [RIGHT]]
    assert {kind: n for kind, n in counts.items() if n} == {"checked": 2, "right": 1, "wrong": 1}
    assert list(counts) == ["checked", "right", "wrong", "no_answer", "unreadable_gold", "timed_out"]


def test_rows_without_a_verdict_stay_undecided_and_are_counted(tokenizer):
    host = Host({"3": Result.timed_out, "4": Result.unreadable_gold})
    rollout = rollout_of(tokenizer, ["Answer: 3", "Answer: 4", "so"])
    verdicts, counts = settle_with(tokenizer, host)(rollout, np.full((3, 1), UNDECIDED, np.int8), [ROOT] * 3)()
    assert verdicts[:2].tolist() == [[UNDECIDED]] * 2
    assert (counts["timed_out"], counts["unreadable_gold"]) == (1, 1)


def test_an_answer_cut_by_the_length_limit_is_none_even_where_padding_is_the_end_token(tokenizer):
    host = Host()
    for ended, asked in ((True, "5"), (False, None)):
        rollout = rollout_of(tokenizer, ["Answer: 5"], ended=ended, pad=tokenizer.eos_token_id)
        settle_with(tokenizer, host)(rollout, np.array([[UNDECIDED]], np.int8), [ROOT])
        assert host.asked.pop() == (asked, "\\sqrt{9}")


def test_slots_behind_a_wrong_one_and_rows_of_nobody_are_not_checked(tokenizer):
    host = Host()
    text = "[SUB-1 ANSWER] 3\n[SUB-2 ANSWER] 5\n[MAIN ANSWER] 9"
    rollout = rollout_of(tokenizer, [text] * 3)
    given = np.array([[UNDECIDED, WRONG, WRONG, UNDECIDED], [RIGHT, RIGHT, WRONG, UNDECIDED], [UNDECIDED] * 4], np.int8)
    verdicts, _ = settle_with(tokenizer, host)(rollout, given, [CHAIN, CHAIN, None])()
    assert host.asked == [("3", "6/2"), ("9", "64")]
    assert verdicts.tolist() == [[RIGHT, WRONG, WRONG, UNDECIDED], [RIGHT, RIGHT, WRONG, RIGHT], [UNDECIDED] * 4]


def test_the_first_box_counts_on_the_host_too(tokenizer):
    host = Host()
    rollout = rollout_of(tokenizer, ["\\boxed{3} or \\boxed{4}"])
    for box, answer in (("last", "4"), ("first", "3")):
        settle_with(tokenizer, host, box=box)(rollout, np.array([[UNDECIDED]], np.int8), [ROOT])
        assert host.asked.pop()[0] == answer


def test_mode_minerva_decides_every_row_as_text_whatever_the_device_says_and_needs_no_worker(tokenizer):
    problem = Problem("p", "Half?", "1/2")
    rollout = rollout_of(tokenizer, ["Answer: 0.5", "Answer: x = 1/2", "\\boxed{1/2}", "Answer: 7"])
    given = np.array([[RIGHT], [WRONG], [RIGHT], [RIGHT]], np.int8)
    problems = [problem, problem, problem, None]
    verdicts, counts = settle_with(tokenizer, None, mode="minerva")(rollout, given, problems)()
    assert verdicts.tolist() == [[WRONG], [RIGHT], [WRONG], [RIGHT]]
    assert (counts["checked"], counts["right"], counts["wrong"], counts["no_answer"]) == (3, 1, 1, 1)


def test_mode_minerva_compares_slots_as_text_too(tokenizer):
    text = "[SUB-1 ANSWER] 3\n[SUB-2 ANSWER] 56 km\n[MAIN ANSWER] c = 64"
    given = np.array([[RIGHT, UNDECIDED, WRONG, WRONG]], np.int8)
    verdicts, _ = settle_with(tokenizer, None, mode="minerva")(rollout_of(tokenizer, [text]), given, [CHAIN])()
    assert verdicts.tolist() == [[WRONG, RIGHT, WRONG, RIGHT]]  # slot 3 is none of the problem's


def test_without_a_verifier_undecided_rows_stay_so(tokenizer):
    given = np.array([[UNDECIDED], [RIGHT]], np.int8)
    verdicts, counts = settle_with(tokenizer, None)(rollout_of(tokenizer, ["Answer: 3"] * 2), given, [ROOT] * 2)()
    assert verdicts.tolist() == given.tolist() and counts["checked"] == 0


def test_an_unknown_mode_is_refused(tokenizer):
    with pytest.raises(ValueError, match="'minerwa'; it must be math or minerva"):
        make_settle(tokenizer, (3,), None, mode="minerwa")
