"""A process reward model against the model card's own procedure in torch; needs torch."""

import pathlib
import types

import jax
import numpy as np
import pytest

from scope_jax.data import chains
from scope_jax.judges import prm
from scope_jax.meshes import make_mesh
from scope_jax.qwen3.tokenizer import load_tokenizer

torch = pytest.importorskip("torch")

import transformers  # noqa: E402

CONVERSATIONS = [
    ("What is 2 + 3 * 4?", ["3*4=12.", "2+12=14.", "So the answer is 14."]),
    ("What is 7 - 5?", ["7-5=2."]),
    ("What is 10 / 4?", ["10/4 is 5/2.", "5/2 = 2.5, which is the answer, and I say so again: 2.5."]),
]
STEPS = 4


class Qwen2ForProcessRewardModel(transformers.Qwen2PreTrainedModel):
    """The layout of Qwen2.5-Math-PRM, whose class comes with its checkpoint and not with transformers."""

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.model = transformers.Qwen2Model(config)
        self.score = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
        self.post_init()

    def forward(self, **inputs):
        return self.score(self.model(**inputs).last_hidden_state)


@pytest.fixture(scope="module")
def model_and_folder(tmp_path_factory):
    """A random reward model, and its folder as transformers saves it, tokenizer included."""
    folder = tmp_path_factory.mktemp("prm")
    tokenizer = load_tokenizer(pathlib.Path(chains.__file__).parent / "chains_model")
    tokenizer.add_special_tokens({"additional_special_tokens": [prm.SEPARATOR]})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer) + 11, hidden_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=36, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = Qwen2ForProcessRewardModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.3 + ("norm" in name))
    model.save_pretrained(folder)
    return model, folder


@torch.no_grad()
def card_probabilities(model, tokenizer, problem, steps):
    """The model card's procedure: one conversation, softmax at the separators, the second class."""
    turns = [
        {"role": "system", "content": "Please reason step by step, and put your final answer within \\boxed{}."},
        {"role": "user", "content": problem},
        {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
    ids = tokenizer.encode(text, return_tensors="pt")
    separators = ids[0] == tokenizer.encode("<extra_0>")[0]
    return torch.softmax(model(input_ids=ids)[0], dim=-1)[separators][:, 1].numpy()


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_probabilities_equal_the_model_cards_in_every_padding(model_and_folder, side):
    model, folder = model_and_folder
    tokenizer = load_tokenizer(folder)
    config, params = prm.load_prm(folder)
    rows = [prm.conversation_ids(tokenizer, *conversation) for conversation in CONVERSATIONS]
    width = max(map(len, rows)) + 6
    tokens, segment_ids = np.full((3, width), 9, np.int32), np.zeros((3, width), np.int32)
    for row, ids in enumerate(rows):
        start = {"left": width - len(ids), "right": 0, "both": 3}[side]
        tokens[row, start : start + len(ids)], segment_ids[row, start : start + len(ids)] = ids, 1
    run = jax.jit(prm.step_probabilities, static_argnames=("config", "max_steps"))
    separator_id = prm.find_separator(tokenizer)
    found, mask = run(params, config, tokens, None, segment_ids, separator_id, max_steps=STEPS)
    for row, (problem, steps) in enumerate(CONVERSATIONS):
        expected = card_probabilities(model, tokenizer, problem, steps)
        assert mask[row].sum() == len(steps) == len(expected)
        assert np.ptp(expected) > 1e-3 or len(expected) == 1
        np.testing.assert_allclose(found[row, : len(steps)], expected, rtol=0, atol=1e-5)


def test_labels_are_those_of_the_model_cards_probabilities(model_and_folder):
    model, folder = model_and_folder
    tokenizer = load_tokenizer(folder)
    expected = np.concatenate([card_probabilities(model, tokenizer, *pair) for pair in CONVERSATIONS])
    middle = float(np.sort(expected)[2:4].mean())
    judge = types.SimpleNamespace(
        max_steps=STEPS, prm_error_below=middle, prm_useful_from=middle, prm_batch_tokens=256
    )
    mesh = make_mesh("data=1", jax.devices()[:1])
    label = prm.make_prm_judge(folder, judge, mesh, lambda text: text.split("\n"))
    problems, completions = zip(*((problem, "\n".join(steps)) for problem, steps in CONVERSATIONS), strict=True)
    labels, mask, valid = label(problems, completions, [""] * 3)
    assert valid.all()
    assert labels[mask].tolist() == np.where(expected < middle, 4, 0).tolist()
