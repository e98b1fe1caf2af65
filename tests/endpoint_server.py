"""A local server that speaks the chat protocol, for tests: answers from a Python function, and fails on request.

    with serve(lambda messages, schema: "42") as server:
        server.faults = ["429", "drop"]  # of the next two requests; then it behaves
        Endpoint(EndpointSettings(url=server.url, model="judge"))
"""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

FAULTS = (
    "slow", "drip", "truncate", "malformed", "empty", "no_text", "length", "refusal",
    "429", "429_date", "429_long", "500", "503", "400", "401", "404", "drop",
)  # fmt: skip
DELAY = 2.0  # seconds that a slow reply takes
RETRY_AFTER = 0.3  # seconds that a 429 asks for


class ChatServer:
    """The state of a running server. All attributes may be changed while it runs.

    answer(messages, schema) gives the reply's text; schema is None where the request has none.
    faults: one of `FAULTS`, or None for a good reply, for each of the next requests, in the order they arrive; or a
      function of the request's body that gives the fault.
    requests: bodies in the order they arrived. headers: theirs. most_at_once: requests in progress, at their peak.
    """

    def __init__(self, answer: Callable[[list[dict], dict | None], str], faults=()):
        self.answer, self.faults = answer, faults
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []  # arrival, by time.monotonic
        self.most_at_once = self._now = 0
        self._lock = threading.Lock()
        self.url = ""

    def _enter(self, body: dict[str, Any], headers: dict[str, str]) -> str | None:
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            if callable(self.faults):
                return self.faults(body)
            self.faults = list(self.faults)
            return self.faults.pop(0) if self.faults else None

    def _leave(self) -> None:
        with self._lock:
            self._now -= 1


@contextlib.contextmanager
def serve(answer: Callable[[list[dict], dict | None], str], faults=()) -> Iterator[ChatServer]:
    """Runs a server on a free port of 127.0.0.1 as long as the block lasts."""
    state = ChatServer(answer, faults)
    handler = type("Handler", (_Handler,), {"state": state})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False  # a slow reply must not hold up the test's end
        state.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    state: ChatServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.state._enter(body, dict(self.headers))
        try:
            if self.path != "/v1/chat/completions":
                fault = "404"
            assert fault is None or fault in FAULTS, fault
            self._reply(body, fault)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has given up on a slow reply
        finally:
            self.state._leave()

    def _reply(self, body, fault):
        if fault == "drop":
            self.close_connection = True
            return
        if fault in ("400", "401", "404", "500", "503"):
            self._send(int(fault), json.dumps({"error": {"message": f"scripted {fault}"}}).encode())
            return
        if fault in ("429", "429_date", "429_long"):
            waits = {"429": str(RETRY_AFTER), "429_date": self.date_time_string(time.time() + 2), "429_long": "86400"}
            self._send(429, b'{"error": {"message": "too many requests"}}', {"Retry-After": waits[fault]})
            return
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        message = {"role": "assistant", "content": self.state.answer(body["messages"], schema)}
        finish = "stop"
        if fault == "no_text":
            message["content"] = None
        if fault == "refusal":
            message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
        if fault == "length":
            finish = "length"
        reply = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        content = json.dumps(reply).encode()
        if fault == "malformed":
            content = content[: len(content) // 2]  # whole for HTTP, broken as JSON
        if fault == "empty":
            content = b"{}"
        if fault == "slow":
            time.sleep(DELAY)
        self._send(200, content, cut=fault == "truncate", drip=fault == "drip")

    def _send(self, status, content, headers=None, *, cut=False, drip=False):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if cut:
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        pieces = [content[i : i + 1] for i in range(len(content))] if drip else [content]
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(0.05 if drip else 0.0)
