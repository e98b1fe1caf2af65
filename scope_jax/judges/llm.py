"""The LLM judge: asks a chat endpoint for the label of each step of a response.

What it cannot label it says so of, row by row, and never raises for: an endpoint that is down, a reply that breaks the
rules twice. Those rows are paid by their outcome (`scope.qpr_stage`) and counted. It never decides correctness.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool, Int

from scope_jax.endpoint import Endpoint, EndpointError
from scope_jax.judges import rubric
from scope_jax.judges.cache import LabelCache
from scope_jax.rewards.qpr import STEP_LABELS

log = logging.getLogger(__name__)

# Labels of (prompts, completions, answers): label ids, mask of real steps, and whether a row could be labelled at all.
Label = Callable[
    [list[str], list[str], list[str]], tuple[Int[np.ndarray, "B N"], Bool[np.ndarray, "B N"], Bool[np.ndarray, "B"]]
]
ATTEMPTS = 2  # replies asked for before a response is given up; requests that fail are tried again by the endpoint


def make_llm_judge(endpoint: Endpoint, judge, *, split: Callable[[str], list[str]], cache: LabelCache) -> Label:
    """The function that labels responses.

    Each different response is asked about once, all of them at once as far as the endpoint's concurrency goes, and its
    labels are on disk as soon as they arrive. When so many requests fail one after another that the endpoint must be
    down, the rest of a call is not asked, so that an outage costs a step the retries of a few rows and not of all. A
    failure is never kept: the next call asks again.

    Args:
      endpoint: where the judge is.
      judge: `config.judge`; read are max_steps (N) and max_tokens.
      split: cuts a completion into its steps, at most N.
      cache: earlier judgements, and where new ones go.

    Returns:
      `label(prompts, completions, answers) -> (labels, mask, valid)`: indices into `STEP_LABELS`, True on real steps,
      and False for rows that could not be labelled, whose mask is empty. A completion without steps is valid.
    """
    patience = max(8, 2 * endpoint.settings.concurrency)  # failed requests in a row, from which the endpoint is down

    def ask(request: tuple[str, list[dict[str, str]], int]) -> list[int]:
        key, messages, count = request
        for attempt in range(ATTEMPTS):
            reply = endpoint.chat(messages, schema=rubric.schema(count), max_tokens=judge.max_tokens)
            try:
                labels = rubric.read_labels(reply, count)
            except ValueError as error:
                messages, reason = [*messages, *rubric.correction(reply, str(error))], error
                continue
            cache.put(key, [STEP_LABELS[label] for label in labels])
            return labels
        raise UnusableReply(f"{endpoint.settings.url}: {ATTEMPTS} replies in a row cannot be used; the last: {reason}")

    def label(prompts, completions, answers):
        steps = [split(completion) for completion in completions]
        labels = np.zeros((len(steps), judge.max_steps), np.int32)
        found: dict[str, list[int]] = {}
        requests: dict[str, tuple] = {}  # by key: equal responses are asked about once
        keys = []
        for prompt, parts, answer in zip(prompts, steps, answers, strict=True):
            if len(parts) > judge.max_steps:
                limit = f"judge.max_steps={judge.max_steps}"
                raise ValueError(f"{len(parts)} steps, more than {limit}: split must merge the rest")
            messages = rubric.messages(prompt, parts, answer)
            keys.append(key := _key(endpoint, messages))
            if not parts:
                found[key] = []
            elif (kept := _ids(cache.get(key), len(parts))) is not None:
                found[key] = kept
            else:
                requests[key] = (key, messages, len(parts))
        found |= _ask_all(requests)
        for row, key in enumerate(keys):
            if key in found:
                labels[row, : len(found[key])] = found[key]
        valid = np.array([key in found for key in keys], bool)
        counts = np.array([len(found.get(key, ())) for key in keys], int)
        return labels, np.arange(judge.max_steps) < counts[:, None], valid

    def _ask_all(requests) -> dict[str, list[int]]:
        """Labels of the requests that could be answered."""
        found, errors, failed_in_row = {}, [], 0
        names = list(requests)

        def while_up() -> Iterator[tuple]:
            for request in requests.values():
                if failed_in_row >= patience:
                    return
                yield request

        try:
            for index, result in endpoint.map(while_up(), ask):
                if isinstance(result, EndpointError):
                    errors.append(result)
                    failed_in_row = 0 if isinstance(result, UnusableReply) else failed_in_row + 1
                else:
                    found[names[index]], failed_in_row = result, 0
        except BaseException:
            endpoint.close()  # an interrupted run must not wait for retries
            raise
        if errors:
            log.warning(
                "judge: %d of %d responses have no labels and are paid by their outcome (%d were not asked about, as "
                "the endpoint seems to be down); the first reason: %s",
                len(names) - len(found), len(names), len(names) - len(found) - len(errors), errors[0],
            )  # fmt: skip
        return found

    return label


class UnusableReply(EndpointError):
    """The endpoint is up, but its replies about a response break the rules."""


def _key(endpoint: Endpoint, messages: list[dict[str, str]]) -> str:
    """Key of everything that decides a judgement: rubric, model, its settings, problem, steps and answer."""
    content = [rubric.VERSION, endpoint.settings.model, endpoint.settings.extra, messages]
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()


def _ids(names: list[str] | None, count: int) -> list[int] | None:
    """Label ids of cached names; None where they are not whole."""
    if not isinstance(names, list) or len(names) != count or not all(name in STEP_LABELS for name in names):
        return None
    return [STEP_LABELS.index(name) for name in names]
