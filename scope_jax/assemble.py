"""From a config to the parts of a run: mesh, policy, encoded problems, host verifier. Shared by the entry points."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import jax
from jax.sharding import Mesh

from scope_jax import qwen3
from scope_jax.data import chains
from scope_jax.data.batches import PromptTable, encode_problems
from scope_jax.data.prompts import STYLES
from scope_jax.data.records import Problem
from scope_jax.data.sources import load_problems
from scope_jax.meshes import batch_sharding, batch_shards
from scope_jax.qwen3.tokenizer import load_tokenizer
from scope_jax.rewards import TokenBytes
from scope_jax.scope import Policy
from scope_jax.verify import Verifier


def load_policy(config, mesh: Mesh, tokenizer, *, max_subs: int) -> Policy:
    """The policy of `config.model`, laid out on the mesh; its byte table finds slots up to `[SUB-max_subs ANSWER]`."""
    c = config.model
    model, params = qwen3.load(c.path, mesh=mesh, dtype=c.param_dtype)
    model = dataclasses.replace(model, dtype=c.dtype, remat=c.remat, eos_ids=end_ids(model, tokenizer))
    table = TokenBytes.from_tokenizer(tokenizer, max_subs=max_subs)
    sharding = batch_sharding(mesh)
    return Policy(params, model, table, lambda tree: jax.device_put(tree, sharding), batch_shards(mesh))


def open_tokenizer(config):
    """The tokenizer of `config.model.path`.

    Raises:
      ValueError: no path is given.
    """
    if not config.model.path:
        raise ValueError("config.model.path is empty; give a Hugging Face folder with --config.model.path=FOLDER")
    return load_tokenizer(config.model.path)


def end_ids(model: qwen3.Config, tokenizer) -> tuple[int, ...]:
    """What ends a completion: the generation config's tokens and the tokenizer's own, which may differ."""
    own = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    ids = tuple(dict.fromkeys((*model.eos_ids, *own)))
    if not ids:
        raise ValueError(f"{tokenizer.name_or_path}: neither the model nor the tokenizer names an end token")
    return ids


def load_tables(config, tokenizer) -> tuple[PromptTable, PromptTable]:
    """The encoded problems of training and of evaluation; one table where both are the same problems."""
    train = load_table(config, tokenizer, "train")
    same = not config.data.eval and config.data.train != "chains"
    return train, train if same else load_table(config, tokenizer, "eval")


def load_table(config, tokenizer, part: str) -> PromptTable:
    """The encoded problems of one part, "train" or "eval"; without a name of its own, eval is what train names.

    Raises:
      ValueError: no name is given, the file is bad or empty, or no chains are asked for.
    """
    c = config.data
    field = "eval" if part == "eval" and c.eval else "train"
    name = c[field]
    if name != "chains":
        return encode(_load(field, name, c.skip_bad), config, tokenizer)
    knobs = {"min_steps": c.chains.min_steps, "max_steps": c.chains.max_steps, "hard_share": c.chains.hard_share}
    made = chains.generate_problems(c.chains.train + c.chains.eval, seed=c.chains.seed, **knobs)
    held_out, rest = made[: c.chains.eval], made[c.chains.eval :]  # distinct problems: none is in both
    problems = held_out if part == "eval" else rest
    if not problems:
        raise ValueError(f"config.data.chains.{part}=0 leaves no problems; give at least 1")
    return encode(problems, config, tokenizer)


def encode(problems: list[Problem], config, tokenizer) -> PromptTable:
    """Problems as arrays, by the config's prompt style and widths; says how many were too long."""
    table = encode_problems(
        problems,
        tokenizer,
        STYLES[config.data.style],
        max_prompt_tokens=config.rollout.max_prompt_tokens,
        max_scaffold_tokens=config.rollout.max_scaffold_tokens,
    )
    if table.dropped:
        ids = ", ".join(problem.id for problem in table.dropped[:5]) + (", ..." if len(table.dropped) > 5 else "")
        limit = f"rollout.max_prompt_tokens={config.rollout.max_prompt_tokens}"
        print(f"{len(table.dropped)} of {len(problems)} problems dropped, longer than {limit}: {ids}")
    return table


def _load(field: str, name: str, skip_bad: bool) -> list[Problem]:
    """Problems of a file, a folder or the package, as `config.data.train` and `.eval` name them."""
    if not name:
        raise ValueError(f"config.data.{field} is empty; give a JSONL file with --config.data.{field}=FILE")
    source = name if name == "word_problems" else "tfds" if pathlib.Path(name).is_dir() else "jsonl"
    problems, bad = load_problems(source, name, split="train" if field == "train" else "test", skip_bad=skip_bad)
    if bad:
        print(f"{name}: {len(bad)} bad lines skipped:", *bad, sep="\n  ")
    return problems


@contextlib.contextmanager
def host_verifier(config) -> Iterator[Callable[[], Verifier] | None]:
    """Gives a function that opens the host verifier when it is first needed; None where `verifier.workers` is 0.

    On data that the device decides, as integers are, no worker process is ever started.
    """
    c = config.verifier
    if not c.workers:
        yield None
        return
    opened: list[Verifier] = []

    def open_verifier() -> Verifier:
        if not opened:
            opened.append(Verifier(c.workers, timeout=c.timeout))
        return opened[0]

    try:
        yield open_verifier
    finally:
        for verifier in opened:
            verifier.close()
