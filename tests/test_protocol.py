"""The measures of an evaluation against enumeration, hand-worked tables and what intervals promise."""

import itertools

import numpy as np
import pytest

from scope_jax import protocol
from scope_jax.rewards import RIGHT, STEP_LABELS, UNDECIDED, WRONG


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_right_one(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([i < c for i in range(n)], k))
        assert protocol.pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@pytest.mark.parametrize("n, c, k", [(4, 1, 5), (4, 1, 0), (4, 5, 1), (4, -1, 1)])
def test_pass_at_k_refuses_what_it_cannot_estimate(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k} of {n} completions with {c} right"):
        protocol.pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("answers", "winners"),
    [
        (["5", "7", "7"], [1, 2]),
        (["1/2", "3", "\\frac{1}{2}", "0.5", "3"], [0, 2, 3]),
        (["7", "5", "5", "7"], [0, 3]),  # a tie: the group that was opened first
        (["5", "7", "7", "5", "9"], [0, 3]),
        ([None, None, None, "5"], [3]),  # no answer never wins
        ([None, None], []),
        (["(A)", "B", "\\text{A}"], [0, 2]),
        (["Friday", "monday", "friday"], [0, 2]),
        (["9" * 2000, "8" * 2000, "9" * 2000], [0, 2]),
    ],
)
def test_the_majority_is_of_equal_answers_however_they_are_written(answers, winners):
    assert protocol.majority(answers) == winners


def test_maj_at_k_averages_the_votes_of_parts_that_share_no_completion():
    answers = ["5", "7", "7", "5", "5", "7", "5"]
    right = [answer == "5" for answer in answers]
    assert protocol.maj_at_k(answers, right, 7) == 1.0
    assert protocol.maj_at_k(answers, right, 1) == pytest.approx(4 / 7)
    assert protocol.maj_at_k(answers, right, 3) == 0.5  # 5 7 7, 5 5 7; the last 5 is left out
    assert protocol.maj_at_k([None, None, None], [False] * 3, 3) == 0.0


@pytest.mark.parametrize(
    ("labels", "position"), [(["useful"], 1.0), (["error", "useful"], 0.0), (["useful", "useful", "error", "error"], 0.5)]
)
def test_the_first_error_is_placed_relative_to_the_steps(labels, position):
    assert protocol.first_error_position(labels) == position


def sample_of(name, verdict, given="5", *, source="", labels=("useful",), tokens=10, ended=True, **more):
    row = {"id": name, "source": source, "verdict": verdict, "given": given, "labels": list(labels), "tokens": tokens}
    return row | {"ended": ended} | more


def random_samples(rng, problems, n, source=""):
    """Problems of different difficulty."""
    rows = []
    for p in range(problems):
        chance = rng.beta(1, 1)
        for _ in range(n):
            right = rng.random() < chance
            labels = rng.choice(STEP_LABELS, size=rng.integers(0, 4)).tolist()
            given = "5" if right else str(rng.integers(6, 9))
            verdict = RIGHT if right else (UNDECIDED if rng.random() < 0.1 else WRONG)
            rows.append(sample_of(f"{p}", verdict, given, source=source, labels=labels, tokens=int(rng.integers(5, 50))))
    return rows


def test_measures_of_two_problems_worked_by_hand():
    samples = [
        sample_of("a", RIGHT, labels=["useful", "error"], tokens=10),
        sample_of("a", RIGHT, labels=[], tokens=20),
        sample_of("a", WRONG, "7", tokens=30),
        sample_of("a", WRONG, "7", tokens=40),
        sample_of("b", RIGHT, labels=["useful"], tokens=50),
        sample_of("b", WRONG, None, tokens=60, ended=False),
        sample_of("b", UNDECIDED, "x+1", tokens=70),
        sample_of("b", WRONG, None, tokens=80),
    ]
    measures, _ = protocol.measure_rows(samples, resamples=100, seed=0)
    expected = {
        "accuracy": 3 / 8, "avg@4": 3 / 8, "pass@1": 3 / 8, "maj@1": 3 / 8,
        "pass@2": (5 / 6 + 1 / 2) / 2, "pass@4": 1.0,
        "maj@2": (1 / 2 + 1 / 2) / 2,  # a: 5 5, then 7 7; b: 5 and no answer, then x+1
        "maj@4": 1.0,  # ties: 5 was given before 7, and before x+1
        "useful": (1 / 2 + 1) / 2, "first_error_pos": (1 / 2 + 1) / 2, "tokens": 45.0, "tokens_correct": 80 / 3,
        "truncated": 1 / 8, "undecided": 1, "unlabelled": 1, "samples": 8, "problems": 2, "n": 4,
    }  # fmt: skip
    assert measures.pop("intervals")["accuracy"] == pytest.approx([0.25, 0.5])
    assert measures == pytest.approx(expected)


def test_intervals_depend_on_the_seed_alone():
    samples = random_samples(np.random.default_rng(0), 20, 4)
    first, second, other = (protocol.measure_rows(samples, resamples=200, seed=seed)[0] for seed in (3, 3, 4))
    assert first == second and first["intervals"] != other["intervals"]
    means = {name: value for name, value in first.items() if name != "intervals"}
    assert means == {name: other[name] for name in means}


def test_there_are_no_intervals_where_nothing_varies_or_none_is_wanted():
    one = [sample_of("a", RIGHT), sample_of("a", WRONG, "7")]
    assert set(protocol.measure_rows(one, resamples=50, seed=0)[0]["intervals"].values()) == {None}
    two = [*one, sample_of("b", WRONG, "7"), sample_of("b", WRONG, "7")]
    assert set(protocol.measure_rows(two, resamples=0, seed=0)[0]["intervals"].values()) == {None}
    found = protocol.measure_rows([two[2], two[3], sample_of("c", WRONG)], resamples=50, seed=0)[0]
    assert found["useful"] is None and found["intervals"]["useful"] is None and found["intervals"]["accuracy"] == [0.0, 0.0]


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Ratios of sums over 60 problems: one with a common denominator, one whose denominators vary with the values."""
    rng, held, trials = np.random.default_rng(0), np.zeros(2), 400
    for seed in range(trials):
        chance = rng.beta(2, 1, size=60)
        right = rng.binomial(4, chance)
        scores = right * chance  # E[sum] / E[count] = E[4 p p] / E[4 p] = (1/2) / (2/3)
        tops, bottoms = np.stack([right, scores]).astype(float), np.stack([np.full(60, 4.0), right])
        draws = protocol.bootstrap(tops, bottoms, resamples=300, seed=seed)
        for i, truth in enumerate((2 / 3, 3 / 4)):
            low, high = protocol.interval(draws[:, i])
            held[i] += low <= truth <= high
    assert np.all(held / trials > 0.90) and np.all(held / trials < 0.985)


def test_the_bootstrap_draws_problems_and_not_completions():
    """Completions of a problem that are all alike make the interval no narrower."""
    few = [sample_of(str(p), RIGHT if p % 2 else WRONG, "5") for p in range(40)]
    many = [row for row in few for _ in range(16)]
    narrow, wide = (protocol.measure_rows(rows, resamples=400, seed=0)[0]["intervals"]["accuracy"] for rows in (many, few))
    assert narrow == wide and 0.2 < wide[1] - wide[0] < 0.4


def test_draws_do_not_depend_on_how_many_are_made_at_a_time(monkeypatch):
    tops, bottoms = np.arange(12.0).reshape(2, 6), np.ones((2, 6))
    whole = protocol.bootstrap(tops, bottoms, resamples=50, seed=1)
    assert whole.shape == (50, 2) and not np.isnan(whole).any()
    monkeypatch.setattr(protocol, "ENTRIES", 6 * 7)
    np.testing.assert_array_equal(protocol.bootstrap(tops, bottoms, resamples=50, seed=1), whole)


def test_rows_by_benchmark_add_up_to_the_whole():
    rng = np.random.default_rng(1)
    samples = random_samples(rng, 8, 4, "aime") + random_samples(rng, 20, 4, "math500") + random_samples(rng, 5, 4, "gpqa")
    whole, _ = protocol.measure_rows(samples, resamples=100, seed=0)
    *rows, mean = protocol.benchmark_rows(samples, resamples=100, seed=0)
    assert [row["source"] for row in rows] == ["aime", "gpqa", "math500"] and mean["source"] == "mean"
    for name in ("samples", "problems", "undecided", "unlabelled"):
        assert sum(row[name] for row in rows) == whole[name] == mean[name]
    for name, weight in (("accuracy", "samples"), ("tokens", "samples"), ("pass@2", "problems"), ("maj@4", "problems")):
        assert sum(row[name] * row[weight] for row in rows) / whole[weight] == pytest.approx(whole[name])
        assert mean[name] == pytest.approx(sum(row[name] for row in rows) / 3)
        low, high = mean["intervals"][name]
        assert low < mean[name] < high


def test_the_mean_of_benchmarks_is_surer_than_each_of_them():
    """Draws of different sources are independent: the mean of two alike has 1 / sqrt(2) of their width."""
    samples = [s | {"source": name} for name in ("a", "b") for s in random_samples(np.random.default_rng(4), 50, 2)]
    first, second, mean = (row["intervals"]["accuracy"] for row in protocol.benchmark_rows(samples, resamples=2000, seed=0))
    assert np.diff(mean) / np.diff(first) == pytest.approx(0.5**0.5, rel=0.1) == np.diff(mean) / np.diff(second)


def test_one_benchmark_has_no_mean_beside_it():
    samples = random_samples(np.random.default_rng(2), 5, 2, "aime")
    assert [row["source"] for row in protocol.benchmark_rows(samples, resamples=10, seed=0)] == ["aime"]


def test_kappa_of_a_table_worked_by_hand():
    # p_o = 35/50, p_e = (25 * 30 + 25 * 20) / 2500 = 0.5
    assert protocol.cohens_kappa(np.array([[20, 5], [10, 15]])) == pytest.approx(0.4)


def test_kappa_is_1_for_equal_labels_0_for_chance_and_undefined_for_one_label_only():
    assert protocol.cohens_kappa(np.diag([3, 4, 5, 6, 7])) == 1.0
    habits, others = np.array([10, 20, 30, 5, 35]), np.array([4, 3, 2, 1, 10])
    assert protocol.cohens_kappa(np.outer(habits, others)) == pytest.approx(0.0, abs=1e-12)
    assert protocol.cohens_kappa(np.array([[0, 5], [5, 0]])) == pytest.approx(-1.0)
    for table in (np.diag([5, 0]), np.zeros((2, 2), int)):
        assert np.isnan(protocol.cohens_kappa(table))


def test_agreement_compares_steps_of_right_completions_that_both_judges_labelled():
    first, second = ["useful", "error", "useful"], ["useful", "redundant", "mechanical"]
    samples = [
        sample_of("a", RIGHT, labels=first, second_labels=second),
        sample_of("b", RIGHT, labels=["error", "useful"], second_labels=["error", "useful"]),
        sample_of("c", RIGHT, labels=first, second_labels=second[:2]),  # other steps
        sample_of("c", RIGHT, labels=first, second_labels=[]),  # a judge that failed
        sample_of("c", RIGHT, labels=[], second_labels=[]),
        sample_of("c", WRONG, labels=first, second_labels=first),
    ]
    found = protocol.agreement(samples, resamples=100, seed=0)
    table = np.zeros((5, 5), int)
    for a, b in [(0, 0), (4, 2), (0, 1), (4, 4), (0, 0)]:
        table[a, b] += 1
    assert found["table"] == table.tolist() and found["labels"] == list(STEP_LABELS)
    assert (found["steps"], found["completions"], found["left_out"]) == (5, 2, 3)
    assert found["equal"] == pytest.approx(3 / 5)
    assert found["kappa"] == pytest.approx((3 / 5 - 8 / 25) / (1 - 8 / 25))
    low, high = found["interval"]
    assert low == pytest.approx((1 / 3 - 2 / 9) / (1 - 2 / 9)) and high == 1.0  # only the first problem, only the second


def test_agreement_of_nothing_is_undefined():
    found = protocol.agreement([sample_of("a", WRONG, second_labels=["useful"])], resamples=10, seed=0)
    assert found["kappa"] is None and found["interval"] is None and found["equal"] is None and found["steps"] == 0
