"""Builds scaffolds: problems in, problems with sub-questions out.

    python -m scope_jax.decompose --input=problems.jsonl --output=scaffolds.jsonl \\
        --url=http://localhost:8000/v1 --model=Qwen/Qwen3-32B

A language model drafts the sub-questions: any OpenAI-compatible endpoint, or with `--policy=FOLDER` a model in this
process. A scaffold is kept if it passes the tests V, P, D and H; a failed one is asked for again with the reason.

Written, each in one go at the end:
- OUTPUT: one record a problem, in the order of the input. Problems without a scaffold are left out, unless
  `--keep_unscaffolded` keeps them with an empty one. A scaffold that the input has is replaced.
- OUTPUT.rejects.jsonl: every problem without a scaffold, with the reasons of all its drafts, the last one in `reason`;
  and every bad line, with `--skip_bad`.
- OUTPUT.journal.jsonl, as it goes: every reply. A stopped run starts again with the same command and pays for none of
  them twice; only replies that were under way are asked for again. Delete it to begin anew.

`--check_only` asks no one for drafts and tests the scaffolds that the input has.
"""

import contextlib
import dataclasses
import json
import pathlib
import sys
import threading
from collections import Counter
from collections.abc import Callable

from absl import flags
from tqdm import tqdm

from scope_jax import overrides
from scope_jax.data.records import BadLine, Problem, load_jsonl, write_jsonl, write_text
from scope_jax.endpoint import Endpoint, EndpointSettings
from scope_jax.scaffolds import build
from scope_jax.scaffolds.journal import Journal
from scope_jax.scaffolds.replies import ReplyError
from scope_jax.scaffolds.statistics import scaffold_statistics, statistics_table
from scope_jax.verify import Verifier

NO_SCAFFOLD = "the input has no scaffold for it"


@dataclasses.dataclass(frozen=True)
class Job:
    """What to do; the command's flags of the same names, which `--help` explains."""

    input: pathlib.Path
    output: pathlib.Path
    settings: build.Settings
    skip_bad: bool = False
    keep_unscaffolded: bool = False
    check_only: bool = False
    checks: str = "offline"
    concurrency: int = 16


def run(job: Job, open_chat: Callable[[], contextlib.AbstractContextManager[build.Chat]]) -> None:
    """Does the job, prints its statistics.

    Args:
      job: what to do.
      open_chat: opens what gives the replies; called only where replies are needed.

    Raises:
      SetupError: the input or an argument cannot be used; nothing was asked for.
      SystemExit: the endpoint is down, or left problems unanswered; says what is done and how to go on.
    """
    with contextlib.ExitStack() as stack:
        with overrides.setting_up():
            problems, bad = load_jsonl(job.input, skip_bad=job.skip_bad)
            if not problems:
                raise ValueError(f"{job.input}: holds no problems")
            if job.output.resolve() == job.input.resolve():
                raise ValueError(f"--output={job.output} is the input; choose another file")
            job.output.parent.mkdir(parents=True, exist_ok=True)
            chat = journal = ask = None
            if not job.check_only or job.checks == "endpoint":
                chat = stack.enter_context(open_chat())
                journal = stack.enter_context(Journal(_beside(job.output, "journal")))
                ask = build.make_ask(chat, journal, job.settings)
        tests = build.make_checks(job.checks, _lazy_verifier(stack), ask)

        def one(problem: Problem) -> build.Built:
            if job.check_only:
                return check_existing(problem, tests)
            return build.build_scaffold(problem, ask, tests, job.settings)

        built: dict[int, build.Built] = {}
        rejected = 0
        progress = stack.enter_context(tqdm(total=len(problems), unit="problem", desc="decompose", mininterval=1.0))
        try:
            for i, result in build.build_all(problems, one, concurrency=job.concurrency):
                built[i] = result
                rejected += not result.problem.scaffold
                progress.set_postfix(rejected=rejected, refresh=False)
                progress.update()
        except build.EndpointDown as error:
            progress.close()
            done = sum(not one.unanswered for one in built.values())
            sys.exit(
                f"decompose: {error}\n{done} of {len(problems)} problems were done; the {len(journal)} replies "
                f"paid for are in {journal.path}. Start the same command again to go on from there"
            )
        progress.close()
        _write(job, [built[i] for i in range(len(problems))], bad, journal)


def check_existing(problem: Problem, tests: dict[str, build.Check]) -> build.Built:
    """The problem, if its own scaffold passes every test; otherwise bare, with the reason of each test that it fails."""
    if not problem.scaffold:
        return build.Built(problem, (NO_SCAFFOLD,))
    reasons = []
    for name, test in tests.items():
        try:
            reason = test(problem, None)
        except ReplyError as error:
            reason = str(error)
        if reason is not None:
            reasons.append(f"test {name}: {reason}")
    return build.Built(dataclasses.replace(problem, scaffold=()) if reasons else problem, tuple(reasons))


def rejects_text(built: list[build.Built], bad: list[BadLine]) -> str:
    """The rejects file: bad lines, then problems without a scaffold, each with why."""
    rows = [{"line": line.line, "reason": str(line)} for line in bad]
    for one in built:
        if not one.problem.scaffold:
            rows.append({"id": one.problem.id, "reason": one.reasons[-1], "reasons": list(one.reasons)})
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write(job: Job, built: list[build.Built], bad: list[BadLine], journal: Journal | None) -> None:
    kept = [one.problem for one in built if one.problem.scaffold or job.keep_unscaffolded]
    rejects = _beside(job.output, "rejects")
    write_text(rejects, rejects_text(built, bad))
    write_jsonl(job.output, kept)
    print(statistics_table(scaffold_statistics(one.problem for one in built)))
    if job.check_only:
        tested = [one for one in built if one.reasons != (NO_SCAFFOLD,) and not one.unanswered]
        failed = Counter(reason.split(":")[0] for one in tested for reason in one.reasons)
        counts = ", ".join(f"{name} {len(tested) - failed[f'test {name}']}" for name in "VPDH")
        print(f"of {len(tested)} scaffolds passed: {counts}, all four {sum(not one.reasons for one in tested)}")
    print(f"scaffolds: {job.output} ({len(kept)} of {len(built)} problems)\nrejects: {rejects}")
    if journal is not None:
        print(f"replies: {journal.paid} paid for in this run, {len(journal)} in {journal.path}")
    unanswered = sum(one.unanswered for one in built)
    if unanswered:
        sys.exit(f"decompose: {unanswered} problems had no reply, see {rejects}; start the same command again")


def _lazy_verifier(stack: contextlib.ExitStack):
    """Opens the host verifier when it is first asked for: on numbers no worker process is ever started."""
    lock, opened = threading.Lock(), []

    def open_verifier() -> Verifier:
        with lock:
            if not opened:
                opened.append(stack.enter_context(Verifier(workers=1)))
            return opened[0]

    return open_verifier


def _beside(output: pathlib.Path, what: str) -> pathlib.Path:
    return output.with_name(f"{output.name}.{what}.jsonl")


def main(_):
    f = flags.FLAGS
    settings = build.Settings(f.policy or f.model, f.attempts, f.max_subs, f.temperature, f.max_tokens)
    same = ("skip_bad", "keep_unscaffolded", "check_only", "checks", "concurrency")
    job = Job(pathlib.Path(f.input), pathlib.Path(f.output), settings, **{name: f[name].value for name in same})
    run(job, _open_chat)


def _open_chat():
    """The endpoint or the policy, whichever is named."""
    f = flags.FLAGS
    if bool(f.url) == bool(f.policy):
        raise ValueError("give either --url=ADDRESS with --model=NAME, or --policy=FOLDER")
    if f.policy:
        from scope_jax.scaffolds.policy_chat import PolicyChat  # loads what an endpoint does not need

        return PolicyChat(
            f.policy, mesh=f.mesh, batch=f.concurrency, max_prompt_tokens=f.max_prompt_tokens, seed=f.seed
        )
    same = ("url", "model", "key_variable", "timeout", "concurrency", "retries", "extra")
    return Endpoint(EndpointSettings(**{name: f[name].value for name in same}))


def _define_flags() -> None:
    flags.DEFINE_string("input", None, "JSONL file of problems.", required=True)
    flags.DEFINE_string("output", None, "JSONL file of problems with scaffolds to write.", required=True)
    flags.DEFINE_bool("skip_bad", False, "List bad lines among the rejects instead of stopping at the first.")
    flags.DEFINE_bool("keep_unscaffolded", False, "Write rejected problems, too, without a scaffold.")
    flags.DEFINE_string("url", "", "Address of the endpoint up to /v1.")
    flags.DEFINE_string("model", "", "Name of the model at --url.")
    flags.DEFINE_string("key_variable", "", "Environment variable that holds the API key.")
    flags.DEFINE_string("extra", "", "JSON object of further fields of a request.")
    flags.DEFINE_integer("retries", 4, "Further tries of a failed request, with growing waits.", lower_bound=0)
    flags.DEFINE_float("timeout", 120.0, "Seconds that one request may take.", lower_bound=0.001)
    flags.DEFINE_string("policy", "", "Hugging Face folder of a model to load here, instead of an endpoint.")
    flags.DEFINE_string("mesh", "data=-1", "Device mesh of --policy.")
    flags.DEFINE_integer("max_prompt_tokens", 4096, "Longest conversation that --policy takes.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of --policy, where the temperature is above 0.", lower_bound=0)
    flags.DEFINE_integer("concurrency", 16, "Requests at once; rows of a batch of --policy.", lower_bound=1)
    flags.DEFINE_enum("checks", "offline", build.CHECK_SETS, "How the tests P and D are made.")
    flags.DEFINE_bool("check_only", False, "Test the scaffolds of the input; draft none.")
    flags.DEFINE_integer("attempts", 3, "Drafts of one problem before it is given up.", lower_bound=1)
    flags.DEFINE_integer("max_subs", 13, "Most sub-questions of a problem.", lower_bound=1, upper_bound=99)
    flags.DEFINE_float("temperature", 0.0, "Of the drafts; 0 is greedy.", lower_bound=0.0)
    flags.DEFINE_integer("max_tokens", 2048, "Longest reply.", lower_bound=1)


if __name__ == "__main__":
    _define_flags()
    overrides.run(main)
