"""Verifiers for the tests: one with real workers, and quick ones whose workers know no algebra."""

import pathlib

import pytest

from scope_jax.verify import Verifier, process

QUICK = [str(pathlib.Path(__file__).parent / "quick_worker.py")]


@pytest.fixture(scope="session")
def verifier():
    with Verifier(workers=2, timeout=2.0) as verifier:
        yield verifier


@pytest.fixture
def quick(monkeypatch):
    """Makes verifiers with quick workers, and closes them."""
    monkeypatch.setattr(process, "WORKER", QUICK)
    opened = []

    def make(**arguments):
        opened.append(Verifier(**({"workers": 2, "timeout": 0.5} | arguments)))
        return opened[-1]

    yield make
    for verifier in opened:
        verifier.close()
