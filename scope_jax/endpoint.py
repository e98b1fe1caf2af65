"""A client for OpenAI-compatible chat endpoints: vLLM, SGLang, llama.cpp or a hosted service.

    with Endpoint(EndpointSettings(url="http://localhost:8000/v1", model="Qwen/Qwen3-32B")) as endpoint:
        reply = endpoint.chat([{"role": "user", "content": "What is 6*7?"}])
        for index, result in endpoint.map(questions, ask):  # ask calls endpoint.chat
            ...

It stands on httpx2, which transformers installs anyway, and not on the `openai` package: that one gives up at a reply
that is not JSON, has no limit on the whole of a request, and hides the replies that a message to the user must quote.
"""

import concurrent.futures
import dataclasses
import datetime
import email.utils
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Request, Result = TypeVar("Request"), TypeVar("Result")

RETRIED = (408, 409, 425, 429)  # and every status from 500
HINTS = {  # what to do about a status that no retry can mend
    400: "the endpoint does not accept the request: the prompt may be too long for it, or it knows no JSON schemas",
    401: "set the environment variable that the key is read from to a valid key",
    403: "the key has no right to this model",
    404: "the address usually ends in /v1, and the model must be one that GET {url}/models lists",
    422: "the endpoint does not accept a field of the request",
}


class EndpointError(RuntimeError):
    """No usable reply; the message names the address, the reason and what to do. `transient`: later may be better."""

    def __init__(self, message: str, *, transient: bool = False):
        super().__init__(message)
        self.transient = transient


@dataclasses.dataclass(frozen=True)
class EndpointSettings:
    """Where and how to ask. Times are in seconds."""

    url: str  # up to and without /chat/completions, such as http://localhost:8000/v1
    model: str  # name of the model there
    key_variable: str = ""  # environment variable that holds the API key; empty: no key is sent
    timeout: float = 120.0  # of one request, from the moment it is sent
    concurrency: int = 16  # requests at once
    retries: int = 4  # further tries after a failed one
    backoff: float = 1.0  # wait before the first retry; doubles each time, with jitter
    max_wait: float = 60.0  # cap of that wait, and the longest Retry-After obeyed; a longer one ends the request
    extra: str = ""  # JSON object of further fields, such as {"chat_template_kwargs": {"enable_thinking": false}}


class Endpoint:
    """An open connection to a chat endpoint; threads share it. Also a context manager."""

    def __init__(self, settings: EndpointSettings):
        """Opens no connection yet.

        Raises:
          ValueError: a setting cannot be used, or the key's environment variable is not set.
          ImportError: httpx2 is not installed.
        """
        try:
            import httpx2
        except ImportError as error:
            raise ImportError("a chat endpoint needs httpx2: pip install scope_jax[judge]") from error
        check_settings(settings)
        self.settings, self._http = settings, httpx2
        self._extra = json.loads(settings.extra or "{}")
        headers = {"Content-Type": "application/json"}
        if settings.key_variable:
            headers["Authorization"] = f"Bearer {_read_key(settings)}"
        # A proxy set for the outside world must not be asked for a server on this machine.
        direct = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}
        self._client = httpx2.Client(
            headers=headers,
            timeout=httpx2.Timeout(settings.timeout, pool=None),
            limits=httpx2.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency),
            mounts=direct,
        )
        self._turn = threading.BoundedSemaphore(settings.concurrency)
        self._closed = threading.Event()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; waits between retries end at once."""
        self._closed.set()
        self._client.close()

    def chat(
        self,
        messages: list[dict[str, str]],
        *,
        schema: dict[str, Any] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 2048,
    ) -> str:
        """The model's reply to a conversation.

        Tries again, with exponential back-off and jitter, after status 408, 409, 425, 429 and 5xx (obeying
        `Retry-After`), time-outs, lost connections, and bodies that are cut short or are no chat completion.

        Args:
          messages: `{"role": "system" | "user" | "assistant", "content": text}`, in order.
          schema: JSON schema that the endpoint must make the reply follow. The reply is not checked against it here.
          temperature: of the sampling; 0 is greedy.
          max_tokens: longest reply, in the endpoint's tokens.

        Raises:
          EndpointError: no usable reply; `transient` where all tries failed.
        """
        body = self._extra | {
            "model": self.settings.model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        if schema is not None:
            named = {"name": "reply", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        content = json.dumps(body).encode("ascii")  # escapes: half a surrogate pair has no UTF-8
        for tried in range(self.settings.retries + 1):
            if self._closed.is_set():
                raise EndpointError(f"{self.settings.url}: the endpoint is closed")
            try:
                return self._once(content)
            except _Retry as failure:
                if tried == self.settings.retries:
                    raise EndpointError(
                        f"{self.settings.url}: {failure} ({tried + 1} tries); is the server up, and is "
                        f"timeout={self.settings.timeout:g} s long enough for it?",
                        transient=True,
                    ) from failure
                self._closed.wait(self._pause(tried, failure))
        raise AssertionError("unreachable")

    def map(
        self, requests: Iterable[Request], function: Callable[[Request], Result]
    ) -> Iterator[tuple[int, Result | EndpointError]]:
        """Calls a function on each request in threads, `settings.concurrency` at once.

        Args:
          requests: taken one by one as threads become free, so they may be many.
          function: usually calls `chat`, once or several times.

        Yields:
          (index of the request, result) as they are done, in any order. An `EndpointError` that the function raises is
          yielded as the result: one request's failure loses no other. Any other exception ends the iteration.
        """
        source = enumerate(requests)
        running: dict[concurrent.futures.Future, int] = {}
        pool = concurrent.futures.ThreadPoolExecutor(self.settings.concurrency, thread_name_prefix="endpoint")
        try:
            while True:
                while len(running) < self.settings.concurrency and (taken := next(source, None)):
                    running[pool.submit(function, taken[1])] = taken[0]
                if not running:
                    return
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    index, error = running.pop(future), future.exception()
                    if error is not None and not isinstance(error, EndpointError):
                        raise error
                    yield index, error if error is not None else future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _once(self, content: bytes) -> str:
        """One request.

        Raises:
          _Retry: it failed in a way that another try may mend.
          EndpointError: it failed for good.
        """
        with self._turn:  # the clock below starts when the request is sent, not when it queues
            deadline, parts = time.monotonic() + self.settings.timeout, []
            try:
                url = f"{self.settings.url.rstrip('/')}/chat/completions"
                with self._client.stream("POST", url, content=content) as response:
                    for part in response.iter_bytes():  # the client's own limit is for one read
                        parts.append(part)
                        if time.monotonic() > deadline:
                            raise _Retry(f"no whole reply within {self.settings.timeout:g} s")
            except self._http.TimeoutException as error:
                raise _Retry(f"no reply within {self.settings.timeout:g} s") from error
            except (self._http.TransportError, self._http.DecodingError) as error:
                if self._closed.is_set():
                    raise EndpointError(f"{self.settings.url}: the endpoint was closed") from error
                raise _Retry(f"connection failed: {error or type(error).__name__}") from error
        text = b"".join(parts).decode("utf-8", errors="replace")
        if response.status_code != 200:
            self._refuse(response, text)
        return self._content(text)

    def _refuse(self, response, text: str) -> None:
        status, said = response.status_code, _shorten(text)
        if status not in RETRIED and status < 500:
            hint = HINTS.get(status, "check the address").format(url=self.settings.url)
            raise EndpointError(f"{self.settings.url}, model {self.settings.model!r}: status {status}: {said}; {hint}")
        wait = _retry_after(response.headers.get("Retry-After", ""))
        if wait is not None and wait > self.settings.max_wait:
            raise EndpointError(
                f"{self.settings.url}: status {status}: asks to wait {wait:.0f} s, longer than "
                f"max_wait={self.settings.max_wait:g} s; come back later, or lower the concurrency",
                transient=True,
            )
        raise _Retry(f"status {status}: {said}", wait)

    def _content(self, text: str) -> str:
        """The message of a chat completion."""
        try:
            choice = json.loads(text)["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            reply = message["content"]
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            raise _Retry(f"the reply is no chat completion: {_shorten(text)}") from error
        if finish == "length":
            raise EndpointError(
                f"{self.settings.url}: the reply was cut at max_tokens; allow more, or switch off the model's thinking"
            )
        if finish == "content_filter" or (reply is None and message.get("refusal")):
            raise EndpointError(f"{self.settings.url}: the model refused: {_shorten(str(message.get('refusal')))}")
        if not isinstance(reply, str):
            raise _Retry(f"the reply has no text: {_shorten(text)}")
        return reply.encode("utf-8", errors="replace").decode("utf-8")  # half a surrogate pair has no UTF-8

    def _pause(self, tried: int, failure: "_Retry") -> float:
        if failure.wait is not None:
            return failure.wait + random.uniform(0.0, 0.1) * self.settings.backoff  # not all at the same moment
        return min(self.settings.max_wait, self.settings.backoff * 2**tried) * random.uniform(0.5, 1.0)


class _Retry(Exception):
    """A failure that another try may mend; `wait`: seconds that the server asks for."""

    def __init__(self, message: str, wait: float | None = None):
        super().__init__(message)
        self.wait = wait


def check_settings(settings: EndpointSettings, where: str = "endpoint: ") -> None:
    """Refuses settings that cannot be used.

    Args:
      settings: to look at.
      where: stands before a field's name in messages.

    Raises:
      ValueError: names the field and what it may be.
    """
    url = settings.url
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{where}url={url!r} must begin with http:// or https://, such as http://localhost:8000/v1")
    if url.rstrip("/").endswith("/chat/completions"):
        raise ValueError(f"{where}url={url!r} must be given without /chat/completions")
    if not settings.model:
        raise ValueError(f"{where}model is empty; name a model that the endpoint serves")
    for name, low in (("timeout", 0.0), ("concurrency", 0), ("retries", -1), ("backoff", -1.0), ("max_wait", 0.0)):
        if not getattr(settings, name) > low:
            raise ValueError(f"{where}{name}={getattr(settings, name)} is too small")
    try:
        is_object = isinstance(json.loads(settings.extra or "{}"), dict)
    except ValueError as error:
        raise ValueError(f"{where}extra={settings.extra!r} is no JSON: {error}") from error
    if not is_object:
        raise ValueError(f"{where}extra={settings.extra!r} must be a JSON object")
    key = _read_key(settings)
    if settings.key_variable and not key:
        raise ValueError(f"{where}key_variable={settings.key_variable!r}: that environment variable is not set")
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"{where}key_variable={settings.key_variable!r} holds characters that no API key has")


def _read_key(settings: EndpointSettings) -> str:
    return os.environ.get(settings.key_variable, "").strip() if settings.key_variable else ""


def _retry_after(value: str) -> float | None:
    """Seconds of a `Retry-After` header, which is a number or a date; None where there is none that can be read."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    now = datetime.datetime.now(moment.tzinfo or datetime.timezone.utc)
    return max(0.0, (moment.replace(tzinfo=now.tzinfo) - now).total_seconds())


def _shorten(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}..."
