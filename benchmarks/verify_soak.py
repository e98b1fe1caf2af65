r"""Soaks the host verifier: many rows, ordinary and hostile, while a thread kills random workers.

    python benchmarks/verify_soak.py --rows=20000 --kill_every=5

Prints rows a second, results by kind, workers replaced, the parent's memory before and after, and what must be 0: rows
lost (without a result), ordinary rows misjudged (another verdict than they are built for; a row whose workers were
killed has none), and processes left behind. Ends with status 1 if one of these is not.
"""

import collections
import os
import pathlib
import random
import signal
import threading
import time

from absl import app, flags

from scope_jax.verify import Result, Verifier, extract_answer

_ROWS = flags.DEFINE_integer("rows", 20_000, "Rows to check.")
_BATCH = flags.DEFINE_integer("batch", 500, "Rows of one batch; two are under way at a time.")
_KILL_EVERY = flags.DEFINE_float("kill_every", 5.0, "Mean seconds between two kills.")
_TIMEOUT = flags.DEFINE_float("timeout", 2.0, "Seconds for one row.")
_WORKERS = flags.DEFINE_integer("workers", 2, "Worker processes.")
_HANGS = flags.DEFINE_float("hangs", 0.001, "Share of rows that algebra never comes back from.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the rows and of the kills.")

HOSTILE = [
    "9**9**9",
    "10^{10^{10}}",
    "9^{9^{9^9}}",
    "1000000!",
    "{" * 100_000 + "}" * 100_000,
    "7" * 1_000_000,
    "\\frac{" * 2000 + "1" + "}{2}" * 2000,
    "\x00",
    "\ud800+x",
    "__import__('os').system('true')",
    "\\input{/etc/passwd}",
]


def row(rng: random.Random) -> tuple[str, str, Result | None]:
    """A completion, its gold answer, and its result; None where any result will do."""
    kind, n = rng.random(), rng.randrange(2000)
    right = rng.random() < 0.5
    wanted = Result.right if right else Result.wrong
    if kind < _HANGS.value:
        return f"\\boxed{{\\int_0^{n} e^{{-x^{{x^{{x}}}}}} dx}}", "7", None
    if kind < 0.4:
        return f"so the answer is \\boxed{{{n:,}}}.", str(n if right else n + 1), wanted
    if kind < 0.65:
        return f"thus\nAnswer: x!+{n}", f"{n if right else n + 1}+x!", wanted
    if kind < 0.75:
        return f"**Answer:** {n}/2000", f"\\frac{{{n if right else n + 1}}}{{2000}}", wanted
    if kind < 0.85:
        return f"nothing at all, {n}", str(n), Result.no_answer
    return f"so \\boxed{{{rng.choice(HOSTILE)}}}", str(n), None


def memory() -> float:
    """MiB of this process's memory that are resident."""
    return int(pathlib.Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def children() -> list[int]:
    """Processes that this one has started and that are still there, zombies included."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
        except OSError:  # it ended meanwhile
            pass
    return found


def kill_workers(verifier: Verifier, rng: random.Random, done: threading.Event, killed: list[int]):
    """Kills a random worker now and then."""
    while not done.wait(rng.expovariate(1 / _KILL_EVERY.value)):
        pid = rng.choice(verifier.pids)
        try:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        except ProcessLookupError:  # just replaced
            pass


def main(_):
    rng = random.Random(_SEED.value)
    rows = [row(rng) for _ in range(_ROWS.value)]
    completions, golds, wanted = zip(*rows, strict=True)
    results, killed, done = [], [], threading.Event()
    with Verifier(_WORKERS.value, timeout=_TIMEOUT.value) as verifier:
        verifier.verify_batch(["Answer: x!+1"], ["1+x!"])
        before = memory()
        killer = threading.Thread(target=kill_workers, args=(verifier, random.Random(_SEED.value), done, killed))
        killer.start()
        begin = time.perf_counter()
        waiting = collections.deque()
        for start in range(0, len(rows), _BATCH.value):
            batch = slice(start, start + _BATCH.value)
            waiting.append(verifier.submit(list(map(extract_answer, completions[batch])), golds[batch]))
            if len(waiting) > 2:
                results += waiting.popleft().result()
        for checks in waiting:
            results += checks.result()
        seconds = time.perf_counter() - begin
        done.set()
        killer.join()
        replaced, after = verifier.replaced, memory()
    counts = collections.Counter(result.name for result in results if isinstance(result, Result))
    lost = len(rows) - sum(counts.values())
    ordinary = [(want, got) for want, got in zip(wanted, results, strict=True) if want is not None]
    misjudged = sum(got not in (want, Result.timed_out) for want, got in ordinary)
    unchecked = sum(got is Result.timed_out for _, got in ordinary)
    leaked = children()
    print(f"{len(rows)} rows in {seconds:.1f} s: {len(rows) / seconds:,.0f} rows/s with {_WORKERS.value} workers")
    print("results: " + ", ".join(f"{kind.name} {counts[kind.name]}" for kind in Result))
    print(f"workers killed {len(killed)}, replaced {replaced}; ordinary rows without a verdict for a kill: {unchecked}")
    print(f"memory of the parent: {before:.0f} MiB before, {after:.0f} MiB after")
    print(f"lost rows: {lost}; misjudged rows: {misjudged}; leaked processes: {len(leaked)}")
    if lost or misjudged or leaked:
        raise SystemExit(1)


if __name__ == "__main__":
    app.run(main)
