"""A model in this process as a chat endpoint: requests of many threads are gathered and sampled in one batch."""

import concurrent.futures
import dataclasses
import functools
import pathlib
import queue
import threading
from typing import Any

import jax
import numpy as np

from scope_jax import assemble, qwen3
from scope_jax.endpoint import EndpointError
from scope_jax.meshes import batch_sharding, batch_shards, make_mesh
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rollout import generate

WIDTH_UNIT = 256  # prompt widths are multiples of it: few programs are compiled
PATIENCE = 0.05  # seconds that a batch waits for another request


@dataclasses.dataclass(frozen=True)
class _Request:
    ids: list[int]
    temperature: float
    max_tokens: int
    reply: concurrent.futures.Future


class PolicyChat:
    """Replies of a Hugging Face folder's model. It does not enforce a JSON schema: replies are validated anyway."""

    def __init__(
        self,
        folder: str | pathlib.Path,
        *,
        mesh: str = "data=-1",
        batch: int = 8,
        max_prompt_tokens: int = 4096,
        seed: int = 0,
    ):
        """Loads the model.

        Args:
          folder: the model's folder.
          mesh: see `meshes.make_mesh`; the batch is cut over it.
          batch: most requests in one batch; rounded up to a multiple of the mesh's batch shards.
          max_prompt_tokens: a longer conversation is refused.
          seed: of sampling with a temperature; greedy replies do not depend on it.

        Raises:
          ValueError, FileNotFoundError: the folder or the mesh cannot be used.
        """
        self.folder, self.max_prompt_tokens = folder, max_prompt_tokens
        devices = make_mesh(mesh)
        shards = batch_shards(devices)
        self.batch = -(-batch // shards) * shards
        self._sharding = batch_sharding(devices)
        self._tokenizer = load_tokenizer(folder)
        model, self._params = qwen3.load(folder, mesh=devices)
        self._model = dataclasses.replace(model, eos_ids=assemble.end_ids(model, self._tokenizer))
        self._key = jax.random.key(seed)
        self._requests: queue.Queue[_Request | None] = queue.Queue()
        self._thread = threading.Thread(target=self._serve, name="policy", daemon=True)
        self._thread.start()

    def __enter__(self) -> "PolicyChat":
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def close(self) -> None:
        """Ends after the batch under way."""
        self._requests.put(None)
        self._thread.join()

    def chat(
        self,
        messages: list[dict[str, str]],
        *,
        schema: dict[str, Any] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 2048,
    ) -> str:
        """The model's reply, thinking switched off; threads that call it share batches.

        A reply that is cut at `max_tokens` comes as it is: it is no whole JSON, and refused as such.

        Raises:
          EndpointError: the conversation is too long.
        """
        del schema
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) > self.max_prompt_tokens:
            limit = f"--max_prompt_tokens={self.max_prompt_tokens}"
            raise EndpointError(f"{self.folder}: the conversation takes {len(ids)} tokens, above {limit}")
        reply: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._requests.put(_Request(ids, temperature, max_tokens, reply))
        return reply.result()

    def _serve(self) -> None:
        """Takes what waits, of one kind of sampling, and answers it in one batch; ends at None."""
        waiting: list[_Request] = []
        while True:
            request = waiting.pop(0) if waiting else self._requests.get()
            if request is None:
                return
            taken = [request]
            while len(taken) < self.batch:
                try:
                    other = self._requests.get(timeout=PATIENCE)
                except queue.Empty:
                    break
                if other is None:
                    self._requests.put(None)
                    break
                same = (other.temperature, other.max_tokens) == (request.temperature, request.max_tokens)
                (taken if same else waiting).append(other)
            try:
                self._answer(taken)
            except Exception as error:  # out of memory, for instance: whoever waits must hear of it
                for one in taken:
                    if not one.reply.done():
                        one.reply.set_exception(error)

    def _answer(self, requests: list[_Request]) -> None:
        longest = max(len(request.ids) for request in requests)
        width = -(-longest // WIDTH_UNIT) * WIDTH_UNIT
        tokens = np.zeros((self.batch, width), np.int32)
        mask = np.zeros((self.batch, width), bool)
        for row in range(self.batch):  # rows left over repeat the first: a row needs a prompt
            ids = requests[row if row < len(requests) else 0].ids
            tokens[row, width - len(ids) :], mask[row, width - len(ids) :] = ids, True
        tokens, mask = jax.device_put((tokens, mask), self._sharding)
        self._key, key = jax.random.split(self._key)
        sampling = requests[0].max_tokens, requests[0].temperature
        rollout = _generate(self._params, self._model, tokens, mask, key, *sampling)
        found, sampled = jax.device_get((rollout.tokens, rollout.mask))
        for row, request in enumerate(requests):
            request.reply.set_result(self._tokenizer.decode(found[row][sampled[row]], skip_special_tokens=True))


@functools.partial(jax.jit, static_argnums=(1, 5, 6))
def _generate(params, model, tokens, mask, key, max_new_tokens, temperature):
    return generate(
        params, model, tokens, mask, key, max_new_tokens=max_new_tokens, temperature=temperature, eos_ids=model.eos_ids
    )
