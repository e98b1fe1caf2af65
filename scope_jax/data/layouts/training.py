"""Layouts of published training sets: DAPO-Math-17k and Big-Math."""

from typing import Any

from scope_jax.data.layouts import fields
from scope_jax.data.records import Problem, RecordError, kind, read_text

# The text around every problem of DAPO-Math-17k. Our prompts have wording of their own, so it goes.
DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem."
)
DAPO_AFTER = 'Remember to put your answer on its own line after "Answer:".'


def dapo_problem(row: Any, where: str, *, id: str, source: str = "dapo") -> Problem:
    """A row of DAPO-Math-17k (`BytedTsinghua-SIA/DAPO-Math-17k`, arXiv:2503.14476), or of its processed variant.

    Published: `prompt`, a list of one `{content, role}` whose content is the problem inside fixed wording;
    `reward_model.ground_truth`, the answer; `extra_info.index`, the id. The file repeats each problem about a hundred
    times with the same index. Processed (`open-r1/DAPO-Math-17k-Processed`): `prompt` is the bare problem, `solution`
    the answer.

    Raises:
      RecordError: a field is missing or odd, or the fixed wording is not around the problem.
    """
    row = fields.as_object(row, where)
    if isinstance(row.get("prompt"), str):
        problem, answer = fields.text(row, where, "prompt"), fields.text(row, where, "solution")
    else:
        message = _object(fields.only(row.get("prompt"), where, "prompt"), where, "prompt[0]")
        problem = _unwrapped(read_text(message, "content", where, "prompt[0].content").strip(), where)
        model = _object(row.get("reward_model"), where, "reward_model")
        answer = read_text(model, "ground_truth", where, "reward_model.ground_truth").strip()
    extra = row.get("extra_info")
    if extra is not None:
        id = fields.identity(_object(extra, where, "extra_info"), where, source, id, "index")
    return fields.record(where, id=id, problem=problem, answer=answer, source=source)


def _unwrapped(content: str, where: str) -> str:
    if not content.startswith(DAPO_BEFORE) or not content.endswith(DAPO_AFTER):
        start = fields.shown(content)
        raise RecordError(where, "prompt", f"lacks DAPO's wording around the problem (Solve ... Answer:): {start}")
    return content[len(DAPO_BEFORE) : -len(DAPO_AFTER)].strip()


def _object(value: Any, where: str, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecordError(where, field, f"is {kind(value)}; it must be an object")
    return value


def big_math_problem(row: Any, where: str, *, id: str, source: str = "big_math") -> Problem:
    """A row of Big-Math (`SynthLabsAI/Big-Math-RL-Verified`, arXiv:2502.17387): `problem` and `answer`.

    The row's own `source` goes after ours (`big_math/cn_k12`), and `llama8b_solve_rate`, where there is one, becomes
    the level (`solve_rate=0.25`; low is hard). `domain` is left out.

    Raises:
      RecordError: a field is missing or odd.
    """
    row = fields.as_object(row, where)
    rate = row.get("llama8b_solve_rate")
    if rate in (None, ""):  # CSV has texts only
        level = None
    else:
        level = f"solve_rate={_share(rate, where):g}"
    return fields.record(
        where,
        id=id,
        problem=fields.text(row, where, "problem"),
        answer=fields.text(row, where, "answer"),
        source=f"{source}/{fields.text(row, where, 'source')}" if row.get("source") else source,
        level=level,
    )


def _share(value: Any, where: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share <= 1:
        raise RecordError(where, "llama8b_solve_rate", f"is {value!r}; it must be a share from 0 to 1")
    return share
