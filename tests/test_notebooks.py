"""The notebooks run from top to bottom without a screen."""

import os
import pathlib

import nbclient
import nbformat
import pytest

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_a_notebook_runs_headless_and_draws(name, monkeypatch):
    monkeypatch.setenv("UPDATES", "2")
    monkeypatch.setenv("XLA_FLAGS", "")  # one device, as in Colab
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": os.fspath(NOTEBOOKS)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = "".join(output.get("text", "") for output in outputs)
    assert "did you mean" in text
