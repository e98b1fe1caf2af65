"""The report of a folder of runs: numbers worked out by hand, left-out runs named, costs next to gains."""

import json
import math

import pytest

from scope_jax import plots
from scope_jax.report import find_runs, format_tables, table_rows, uneven_seeds, write_report

HALVES = {
    "scope": [("asr", 4), ("qpr", 4)],
    "asr": [("asr", 8)],
    "grpo": [("outcome", 8)],
    "mixed": [("mixed", 8)],
    "base": [],
}


def write_run(root, method, seed, *, accuracy=0.5, finished=True, tokens=1000, **measures):
    """A synthetic run: eta_R is 0.8 in stage asr, 0.4 in qpr, 0.1 elsewhere; an update generates `tokens` tokens."""
    folder = root / method / f"seed-{seed}"
    folder.mkdir(parents=True)
    rows, step = [], 0
    for stage, updates in HALVES[method]:
        for _ in range(updates):
            step += 1
            eta = {"asr": 0.8, "qpr": 0.4}.get(stage, 0.1)
            rows.append(
                {
                    "step": step, "stage": stage, "eta_r": eta, "reward": 0.1 * step + 0.01 * seed, "length": 60 - step,
                    "routed": 0.5 if stage == "asr" else 0.0, "outcome": 0.05 * step, "generated_tokens": tokens + seed,
                }
            )  # fmt: skip
    if rows:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        result = {"accuracy": accuracy, "useful": 0.6, "first_error_pos": 0.9, "tokens": 50.0, "train_seconds": 80.0}
        result |= {"format_error_rate": 0.02, "truncated": 0.01, "op_accuracy": {"carry": 0.5, "plain": 0.9}} | measures
        (folder / "eval.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def runs(tmp_path):
    """Base, GRPO, ASR only, SCOPE-RL and one ablation, of which three seeds are finished."""
    for seed in range(3):
        write_run(tmp_path, "mixed", seed, accuracy=0.35)
        write_run(tmp_path, "scope", seed, accuracy=0.5 + 0.1 * seed, useful=0.7 + 0.1 * seed, tokens=2000)
        write_run(tmp_path, "asr", seed, accuracy=0.5, tokens=3000)
        write_run(tmp_path, "grpo", seed, accuracy=0.3 + 0.03 * seed)
        write_run(tmp_path, "base", seed, accuracy=0.25, op_accuracy={"carry": None, "plain": 0.8})
    return tmp_path


def rows_of(folder):
    return {row["method"]: row for row in table_rows(find_runs(folder)[0])}


def test_the_rows_stand_in_the_order_of_the_papers_table(runs):
    rows = table_rows(find_runs(runs)[0])
    assert [row["method"] for row in rows] == ["base", "grpo", "asr", "scope", "mixed"]
    assert [row["label"] for row in rows] == ["base", "GRPO", "ASR only", "SCOPE-RL", "mixed"]


def test_means_and_spread_over_seeds_are_those_worked_out_by_hand(runs):
    row = rows_of(runs)["scope"]
    assert math.isclose(row["accuracy_mean"], 0.6) and math.isclose(row["accuracy_std"], 0.1)
    assert sorted(row["accuracy_by_seed"]) == pytest.approx([0.5, 0.6, 0.7])
    assert math.isclose(row["useful_mean"], 0.8)
    assert (row["first_error_pos_mean"], row["tokens_mean"], row["seeds"], row["seed_list"]) == (
        0.9,
        50.0,
        3,
        [0, 1, 2],
    )
    assert row["op_accuracy"] == {"carry": 0.5, "plain": 0.9} and row["format_error_rate_mean"] == 0.02


def test_eta_r_is_that_of_the_first_stage_and_the_others_are_kept(runs):
    rows = rows_of(runs)
    assert math.isclose(rows["scope"]["eta_r_mean"], 0.8), "the mean over both stages would be 0.6"
    assert list(rows["scope"]["eta_r_by_stage"]) == ["asr", "qpr"]
    assert math.isclose(rows["scope"]["eta_r_by_stage"]["qpr"], 0.4)
    assert math.isclose(rows["grpo"]["eta_r_mean"], 0.1) and rows["base"]["eta_r_mean"] is None


def test_costs_stand_beside_the_gains_per_update_and_per_generated_token(runs):
    rows = rows_of(runs)
    assert rows["scope"]["updates"] == 8 and rows["scope"]["generated_tokens"] == 8 * 2001
    assert rows["scope"]["tokens_per_update"] == 2001 and rows["scope"]["seconds_per_update"] == 10
    assert (
        rows["base"]["updates"] == rows["base"]["generated_tokens"] == 0 and rows["base"]["tokens_per_update"] is None
    )
    text = format_tables(list(rows.values()), [])
    [line] = [line for line in text.splitlines() if line.startswith("| SCOPE-RL") and "16,008" in line]
    assert line.split("|")[-2].strip() == f"{35 / 0.016008:+.2f}"


def test_what_a_run_did_not_measure_is_no_zero(runs):
    rows = rows_of(runs)
    assert rows["base"]["op_accuracy"]["carry"] is None
    assert "| base " in format_tables([rows["base"]], [])


def test_what_only_a_later_seed_measured_is_in_the_means(tmp_path):
    """The first seed may lack a kind of equation, or have met no group with a signal in a stage."""
    first = write_run(tmp_path, "scope", 0, op_accuracy={"plain": 0.8})
    rows = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    rows = [row | {"eta_r": None} if row["stage"] == "qpr" else row for row in rows]
    (first / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_run(tmp_path, "scope", 1)
    row = rows_of(tmp_path)["scope"]
    assert row["op_accuracy"] == pytest.approx({"plain": 0.85, "carry": 0.5})
    assert row["eta_r_by_stage"] == pytest.approx({"asr": 0.8, "qpr": 0.4})


def test_errors_by_kind_stand_under_their_own_heads(runs):
    lines = [line.split("|") for line in format_tables(table_rows(find_runs(runs)[0]), []).splitlines()]
    [head] = [line for line in lines if "format errors" in "".join(line)]
    row = next(line for line in lines[lines.index(head) :] if line[1:2] and line[1].strip() == "GRPO")
    named = {name.strip(): cell.strip() for name, cell in zip(head, row, strict=True) if name.strip()}
    assert named == {
        "method": "GRPO", "plain right %": "90.0", "carry right %": "50.0", "format errors %": "2.0", "cut off %": "1.0"
    }  # fmt: skip


def test_a_curve_is_of_its_own_methods_runs(runs, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "write_plots", lambda output, curves: drawn.append(curves))
    write_report(runs)
    found = {label: [{row["stage"] for row in run} for run in every] for label, every in drawn[0].items()}
    assert found == {
        "GRPO": [{"outcome"}] * 3, "ASR only": [{"asr"}] * 3, "SCOPE-RL": [{"asr", "qpr"}] * 3, "mixed": [{"mixed"}] * 3
    }  # fmt: skip


def test_one_seed_has_no_spread(tmp_path):
    write_run(tmp_path, "grpo", 0)
    rows = table_rows(find_runs(tmp_path)[0])
    assert rows[0]["accuracy_std"] is None and "| 50.0 " in format_tables(rows, [])


def test_one_seed_shows_the_interval_of_its_evaluation(tmp_path):
    write_run(tmp_path, "grpo", 0, intervals={"accuracy": [0.412, 0.588]})
    for seed in range(2):
        write_run(tmp_path, "asr", seed, intervals={"accuracy": [0.412, 0.588]})
    text = format_tables(table_rows(find_runs(tmp_path)[0]), [])
    assert "| 50.0 [41.2, 58.8] |" in text and "| 50.0 ± 0.0 " in text


def test_unfinished_runs_and_missing_seeds_are_named_and_not_in_the_means(runs):
    write_run(runs, "grpo", 3, accuracy=1.0, finished=False)
    (runs / "scope" / "seed-3").mkdir()
    write_run(runs, "asr", 3, accuracy=0.5)
    found, unfinished = find_runs(runs)
    assert "grpo/seed-3 is not finished: it stopped after update 8 and has no eval.json" in unfinished
    assert "scope/seed-3 is not finished: it has made no update and has no eval.json" in unfinished
    assert rows_of(runs)["grpo"]["seeds"] == 3
    assert "grpo has no finished run of seed 3; other methods have" in uneven_seeds(found)
    text = write_report(runs)
    assert "grpo/seed-3 is not finished" in text and "scope has no finished run of seed 3" in text


def test_the_report_is_written_as_markdown_json_and_plots(runs):
    output = runs / "report"
    text = write_report(runs, output)
    assert (output / "table.md").read_text() == text
    assert "| method   | seeds | accuracy %  | Useful % | 1st-Err-Pos | tokens | eta_R |" in text
    assert "| SCOPE-RL | 3     | 60.0 ± 10.0 | 80.0     | 0.900       | 50.0   | 0.800 |" in text
    rows = json.loads((output / "table.json").read_text())
    wanted = "method accuracy_mean accuracy_std useful_mean first_error_pos_mean tokens_mean eta_r_mean seeds".split()
    assert all(name in row for row in rows for name in wanted)
    for name in ("reward", "eta_r", "length", "routed", "outcome"):
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_base_runs_alone_give_a_table_without_plots(tmp_path):
    write_run(tmp_path, "base", 0)
    assert "base" in write_report(tmp_path) and not list(tmp_path.glob("*.png"))


def test_a_folder_without_runs_says_what_was_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="no runs; expected folders such as .*scope/seed-0"):
        find_runs(tmp_path)


def test_a_folder_of_unfinished_runs_says_so(tmp_path):
    (write_run(tmp_path, "grpo", 0) / "eval.json").unlink()
    with pytest.raises(FileNotFoundError, match="no finished run; grpo/seed-0 is not finished"):
        find_runs(tmp_path)


@pytest.mark.parametrize("text, message", [("{", "not JSON"), ('{"useful": 1}', "field accuracy is missing")])
def test_a_malformed_evaluation_is_named(tmp_path, text, message):
    (write_run(tmp_path, "grpo", 0) / "eval.json").write_text(text)
    with pytest.raises(ValueError, match=rf"grpo/seed-0/eval.json: {message}"):
        find_runs(tmp_path)


def test_a_folder_with_an_odd_name_is_named(tmp_path):
    (tmp_path / "grpo" / "seed-x").mkdir(parents=True)
    with pytest.raises(ValueError, match="seed-x: a run's folder is named seed-N"):
        find_runs(tmp_path)
