"""Builds scaffolds: draft, test, try again with the reason, for many problems at once."""

import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from scope_jax.data.records import Problem
from scope_jax.endpoint import EndpointError
from scope_jax.scaffolds import checks, rubric
from scope_jax.scaffolds.derivations import derivations
from scope_jax.scaffolds.draft import draft_messages, draft_schema, read_draft
from scope_jax.scaffolds.journal import Journal
from scope_jax.scaffolds.replies import ReplyError
from scope_jax.verify import Verifier

Check = Callable[[Problem, Sequence[str] | None], str | None]  # (problem with scaffold, works) -> reason or None
CHECK_SETS = ("offline", "endpoint")  # how P and D are checked


class Chat(Protocol):
    """What gives replies: an endpoint, or a policy in this process. Threads share it."""

    def chat(
        self, messages: list[dict[str, str]], *, schema: dict[str, Any] | None, temperature: float, max_tokens: int
    ) -> str:
        """The reply; raises `EndpointError` where there is none."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What determines the replies, besides the problems."""

    model: str  # its name, or its folder
    attempts: int = 3  # drafts of one problem
    max_subs: int = 13  # the paper's longest scaffold
    temperature: float = 0.0
    max_tokens: int = 2048  # of one reply


class Built(NamedTuple):
    """What became of one problem: with its scaffold, or without one and why."""

    problem: Problem
    reasons: tuple[str, ...]  # why each draft before was refused; where no scaffold was built, the last says why
    unanswered: bool = False  # the endpoint gave no reply: another run may


def make_ask(chat: Chat, journal: Journal, settings: Settings) -> rubric.Ask:
    """Asks through the journal: a reply is paid for once."""

    def ask(messages, schema, tried):
        sampling = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        request = {"model": settings.model, "messages": messages, "schema": schema, "try": tried, **sampling}
        return journal.ask(request, lambda: chat.chat(messages, schema=schema, **sampling))

    return ask


def make_checks(kind: str, open_verifier: Callable[[], Verifier], ask: rubric.Ask | None = None) -> dict[str, Check]:
    """The four tests by name, the cheap ones first; P and D offline or, with `ask`, by endpoint."""

    def hidden(problem, works):
        return checks.check_hidden(problem, derivations(problem, works))

    tests: dict[str, Check] = {
        "V": lambda problem, works: checks.check_verifiable(problem, open_verifier),
        "H": hidden,
    }
    if kind == "endpoint":
        tests["P"] = lambda problem, works: rubric.judge_prerequisites(problem, ask)
        tests["D"] = lambda problem, works: rubric.judge_dependence(problem, ask)
    else:
        tests["P"] = lambda problem, works: checks.check_prerequisites(problem, derivations(problem, works))
        tests["D"] = lambda problem, works: checks.check_dependence(problem, derivations(problem, works))
    return tests


def build_scaffold(problem: Problem, ask: rubric.Ask, tests: dict[str, Check], settings: Settings) -> Built:
    """Drafts a scaffold until one passes all tests, at most `settings.attempts` times.

    Raises:
      EndpointError: there was no reply.
    """
    reasons, refused = [], None
    for attempt in range(settings.attempts):
        reply = ask(draft_messages(problem, settings.max_subs, refused), draft_schema(), attempt)
        try:
            draft = read_draft(reply, problem, settings.max_subs)
            reason = first_failure(draft.problem, draft.works, tests)
        except ReplyError as error:
            reason = str(error)
        if reason is None:
            return Built(draft.problem, tuple(reasons))
        reasons.append(reason)
        refused = reply, reason
    return Built(dataclasses.replace(problem, scaffold=()), tuple(reasons))


def first_failure(problem: Problem, works: Sequence[str] | None, tests: dict[str, Check]) -> str | None:
    """The first test that a scaffold fails, with the reason; None where it passes all."""
    for name, test in tests.items():
        reason = test(problem, works)
        if reason is not None:
            return f"test {name}: {reason}"
    return None


class EndpointDown(RuntimeError):
    """So many requests have failed in a row that going on makes no sense."""


def build_all(
    problems: Sequence[Problem], build: Callable[[Problem], Built], *, concurrency: int
) -> Iterator[tuple[int, Built]]:
    """Builds many, `concurrency` at once.

    A problem without a reply is given up with the endpoint's message. Bad problems stop nothing; but when `concurrency`
    problems in a row (at least 3, or all) have had no reply, the endpoint is taken to be down. A failure for good, such
    as a problem too long for the model, counts only as long as no problem at all was answered: then it is the address
    or the key that is wrong.

    Yields:
      (index, what became of the problem), as they are done.

    Raises:
      EndpointDown: see above; what was paid for is in the journal.
    """
    limit = min(len(problems), max(3, concurrency))
    lock, stopped, answered, in_a_row = threading.Lock(), threading.Event(), threading.Event(), []

    def work(problem: Problem) -> Built | None:
        if stopped.is_set():
            return None
        try:
            built = build(problem)
        except EndpointError as error:
            with lock:
                if error.transient or not answered.is_set():
                    in_a_row.append(error)
                if len(in_a_row) >= limit:
                    stopped.set()
            return Built(dataclasses.replace(problem, scaffold=()), (f"no reply: {error}",), unanswered=True)
        with lock:
            answered.set()
            if not stopped.is_set():
                in_a_row.clear()
        return built

    pool = concurrent.futures.ThreadPoolExecutor(concurrency, thread_name_prefix="decompose")
    try:
        running = {pool.submit(work, problem): i for i, problem in enumerate(problems)}
        for future in concurrent.futures.as_completed(running):
            built = future.result()
            if built is not None:
                yield running[future], built
        if stopped.is_set():
            raise EndpointDown(f"{in_a_row[-1]} ({len(in_a_row)} problems in a row had no reply)")
    finally:  # what is under way is paid for: it is waited for, and kept in the journal
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
