"""Golden models of transformers as Hugging Face folders."""

import pathlib

import numpy as np
import pytest
from safetensors.numpy import save_file

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.fixture
def golden(tmp_path):
    """Writes a golden model's config and weights into a folder; gives the folder and all golden arrays."""

    def write(name):
        with np.load(GOLDEN / f"{name}.npz") as file:
            arrays = dict(file)
        (tmp_path / "config.json").write_text(str(arrays["config.json"]))
        weights = {key.removeprefix("weights/"): value for key, value in arrays.items() if key.startswith("weights/")}
        save_file(weights, tmp_path / "model.safetensors")
        return tmp_path, arrays

    return write
