"""A worker process of the verifier: `python -m scope_jax.verify.worker FD MEMORY`. Reads rows, answers with results."""

import resource
import sys
from multiprocessing.connection import Connection

READY = "ready"


def main(descriptor: int, memory: int):
    """Serves until the other end closes.

    Args:
      descriptor: of the connection to the verifier.
      memory: bytes of address space that may be used, libraries included; a row that needs more has no verdict.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (memory, hard))  # before the imports: they must fit too
    from scope_jax.verify.result import Result
    from scope_jax.verify.symbolic import symbolic_check

    # The first parse is slow, so it is on no row's clock; and libraries short of memory fail in silence.
    if symbolic_check("\\frac{x}{2}", "\\frac12 x") is not Result.right:
        raise MemoryError(f"math-verify does not work within {memory} bytes of address space")
    with Connection(descriptor) as connection:
        connection.send(READY)
        while True:
            try:
                answer, gold, limit = connection.recv()
            except EOFError:
                return
            _limit_processor_time(limit)
            try:
                result = symbolic_check(answer, gold)
            except Exception:  # whatever an answer provokes, the next row is served
                result = Result.timed_out
            connection.send(result)


def _limit_processor_time(seconds: float):
    """Ends this process by itself if it hangs after its parent has died and can no longer kill it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + 2 * seconds + 10)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
