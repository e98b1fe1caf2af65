"""The records of a run: nothing doubled after a restart, nothing JSON cannot hold, a line that a person can read."""

import io
import json

import jax.numpy as jnp
import numpy as np
import pytest

from scope_jax.metrics import MetricsWriter, NonFiniteError, all_finite, progress_line, read_jsonl, require_finite


class Terminal(io.StringIO):
    def isatty(self):
        return True


def writer(folder, **options):
    options = {"total_steps": 10, "tensorboard": False, "stream": io.StringIO()} | options
    return MetricsWriter(folder, **options)


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_each_update_is_one_json_object_with_plain_numbers(tmp_path):
    with writer(tmp_path) as metrics:
        metrics.write(
            1, {"stage": "asr", "reward": jnp.float32(0.5), "routed": np.float64(0.25), "generated_tokens": 80}
        )
        metrics.write(2, {"stage": "asr", "per_stage": np.int32([1, 2]), "loss": float("nan")})
    first, second = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first["step"] == 1 and first["reward"] == 0.5 and first["routed"] == 0.25 and first["stage"] == "asr"
    assert first["seconds"] > 0 and first["tokens_per_second"] > 0
    assert second["per_stage"] == [1, 2]
    assert second["loss"] is None, "JSON has no NaN: other readers would stop at it"


def test_lines_are_on_disk_before_the_next_update(tmp_path):
    metrics = writer(tmp_path)
    metrics.write(1, {"reward": 0.0})
    metrics.write_rollouts(1, [{"id": "p"}])
    assert steps(tmp_path / "metrics.jsonl") == steps(tmp_path / "rollouts.jsonl") == [1]


def test_a_resumed_run_doubles_no_line_in_either_file(tmp_path):
    with writer(tmp_path) as metrics:
        for step in range(1, 6):
            metrics.write(step, {"reward": 0.1})
            metrics.write_rollouts(step, [{"id": "p"}, {"id": "q"}])
    with writer(tmp_path, resume_step=3) as metrics:
        for step in range(4, 7):
            metrics.write(step, {"reward": 0.2})
            metrics.write_rollouts(step, [{"id": "p"}, {"id": "q"}])
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 3, 4, 5, 6]
    assert steps(tmp_path / "rollouts.jsonl") == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert [row["reward"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [0.1, 0.1, 0.1, 0.2, 0.2, 0.2]


def test_a_run_that_starts_again_from_nothing_forgets_the_old_lines(tmp_path):
    for _ in range(2):
        with writer(tmp_path) as metrics:
            metrics.write(1, {})
    assert steps(tmp_path / "metrics.jsonl") == [1]


@pytest.mark.parametrize("cut", ['{"step": 3, "rew', '{"step": 3}', '{"completion": "\u2212'])
def test_a_line_cut_by_a_kill_is_dropped(tmp_path, cut):
    with writer(tmp_path) as metrics:
        metrics.write(1, {})
        metrics.write(2, {})
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + cut.encode()[:15])
    assert [row["step"] for row in read_jsonl(path)] == [1, 2]
    with writer(tmp_path, resume_step=3) as metrics:
        metrics.write(4, {})
    assert steps(path) == [1, 2, 4]


def test_a_malformed_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl:2: not a JSON object"):
        read_jsonl(path)


def test_the_rollout_log_has_fixed_fields_in_order_and_words_for_ids(tmp_path):
    with writer(tmp_path) as metrics:
        rows = [
            {
                "id": "chain-7", "stage": "asr", "routed": np.bool_(True), "completion": "a = 3 \u2212 5\n",
                "verdicts": np.int8([1, 0, 2]), "labels": jnp.int32([0, 2, 4]), "reward": np.float32(0.25), "length": 9,
            }
        ]  # fmt: skip
        metrics.write_rollouts(4, rows)
    text = (tmp_path / "rollouts.jsonl").read_text(encoding="utf-8")
    assert "a = 3 \u2212 5" in text, "a person reads this file"
    row = json.loads(text)
    assert list(row) == "step stage id routed prompt completion verdicts labels reward advantage length".split()
    assert row["step"] == 4 and row["routed"] is True and row["reward"] == 0.25 and row["advantage"] is None
    assert row["verdicts"] == ["right", "wrong", "undecided"]
    assert row["labels"] == ["useful", "redundant", "error"]


def test_a_rollout_field_that_the_log_does_not_know_is_refused(tmp_path):
    with writer(tmp_path) as metrics, pytest.raises(ValueError, match="unknown field 'rewards'"):
        metrics.write_rollouts(1, [{"id": "p", "rewards": 1.0}])


def test_the_progress_line_holds_what_a_person_watches():
    row = {
        "step": 30, "stage": "asr", "tokens_per_second": 12345.6, "reward": 0.4321, "eta_r": 0.756, "routed": 0.5,
        "length": 61.27, "seconds": 2.0,
    }  # fmt: skip
    wanted = "step 30/100 | asr | tok/s 12,346 | reward 0.432 | eta_R 0.76 | routed 50% | length 61.3 | ETA 1:56:40"
    assert progress_line(row, 100, 100.0) == wanted
    assert progress_line({"step": 100}, 100, 2.0) == "step 100/100 | ETA 0:00:00"


def test_a_terminal_gets_one_line_that_is_rewritten(tmp_path):
    stream = Terminal()
    with writer(tmp_path, stream=stream) as metrics:
        metrics.write(1, {"reward": 0.5})
        metrics.write(2, {"reward": 0.5})
    assert stream.getvalue().count("\r") == 2 and stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\n")


def test_a_log_file_gets_few_lines_and_always_the_last(tmp_path):
    stream = io.StringIO()
    with writer(tmp_path, stream=stream, progress_seconds=3600) as metrics:
        for step in range(1, 11):
            metrics.write(step, {"reward": 0.5})
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/10", "10/10"]


def test_the_compilation_of_the_first_update_does_not_spoil_the_time_left(tmp_path, monkeypatch):
    clock = iter([0.0, 100.0, 101.0, 102.0, 103.0, 104.0])
    monkeypatch.setattr("scope_jax.metrics.time.perf_counter", lambda: next(clock))
    stream = Terminal()
    metrics = writer(tmp_path, stream=stream)
    for step in range(1, 6):
        metrics.write(step, {})
    assert "ETA 0:00:05" in stream.getvalue().split("\r")[-1]


def test_tensorboard_events_are_written_without_tensorflow(tmp_path):
    with writer(tmp_path, tensorboard=True) as metrics:
        metrics.write(1, {"reward": 0.5, "stage": "asr"})
    [path] = tmp_path.glob("events.out.tfevents.*")
    assert b"reward" in path.read_bytes() and b"stage" not in path.read_bytes()


def test_a_non_finite_number_stops_with_step_and_name():
    require_finite(3, metrics={"loss": jnp.float32(1.0), "count": 3}, gradient={"w": jnp.zeros(3, jnp.bfloat16)})
    with pytest.raises(NonFiniteError, match=r"step 12: not finite: metrics\['loss'\] = nan"):
        require_finite(12, metrics={"loss": jnp.float32(jnp.nan), "grad_norm": 1.0})
    with pytest.raises(NonFiniteError, match=r"step 4: not finite: loss = -inf\."):
        require_finite(4, loss=-jnp.inf)


def test_the_array_of_a_non_finite_gradient_is_named():
    gradient = {"embed": jnp.ones((3, 2)), "layers": {"wq": jnp.ones((2, 2)).at[1, 0].set(jnp.inf), "wk": jnp.ones(2)}}
    with pytest.raises(NonFiniteError, match=r"step 7: not finite: gradient\['layers'\]\['wq'\]\."):
        require_finite(7, gradient=all_finite(gradient))
    with pytest.raises(NonFiniteError, match=r"gradient\['layers'\]\['wq'\]\."):
        require_finite(7, gradient=gradient)


def test_many_non_finite_arrays_are_counted():
    with pytest.raises(NonFiniteError, match="and 4 more"):
        require_finite(1, gradient={str(i): jnp.nan for i in range(9)})
