"""`reference-trainer evaluate`: its table, its JSON, and what it refuses."""

import json
from pathlib import Path

import pytest

from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.export import save_decoder
from tests.reference_trainer.commands import command


def saved(directory: Path, name: str, seed: int) -> str:
    """Return the path of a saved model of bytes."""
    path = directory / name
    path.mkdir()
    save_decoder(new_decoder(DecoderConfig(vocab_size=256, layers=1, width=16, heads=1), seed), path, {})
    return str(path)


def test_table_has_a_line_for_each_model(tmp_path: Path) -> None:
    """One line for each model, in the order of the arguments; with a teacher also the divergence from it."""
    models = [saved(tmp_path, "a", 1), saved(tmp_path, "b", 2)]
    ended = command("evaluate", *models, "--teacher", models[0], "--device", "cpu")
    about, head, *lines = ended.said.splitlines()
    assert ended.code == 0 and not ended.complaints
    assert about.endswith(f"bytes in sequences of 128, against {models[0]}")
    assert head.split()[:4] == ["model", "hard_loss", "kl_at_1", "agreement"]
    assert [line.split()[0] for line in lines] == models
    assert lines[0].split()[2:4] == ["0", "1"]


def test_json_has_sums_of_the_chosen_text(tmp_path: Path) -> None:
    """`--json` prints one document; `--data`, `--whole` and `--length` choose what is counted."""
    text = tmp_path / "text"
    text.write_bytes(bytes(range(101)))
    arguments = ["--data", str(text), "--whole", "--length", "11", "--batch-size", "3", "--device", "cpu", "--json"]
    ended = command("evaluate", saved(tmp_path, "a", 1), *arguments)
    report = json.loads(ended.said)
    assert ended.code == 0
    assert report["text"]["name"] == str(text) and report["text"]["part"] == "whole" and report["length"] == 11
    assert report["models"][0]["sums"]["hard_loss"]["count"] == 100


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing"], 1, "missing"),
        (["missing", "--length", "1"], 2, "'length'"),
        (["missing", "--device", "tpu9"], 2, "'device'"),
        (["missing", "--data", "no-text"], 1, "no-text"),
        ([], 2, "MODEL"),
    ],
)
def test_refusal_names_what_is_wrong(arguments: list[str], code: int, words: str) -> None:
    """Exit code 2 for a wrong option, 1 for a file that cannot be used, with one line."""
    ended = command("evaluate", *arguments)
    assert ended.code == code and words in ended.complaints and not ended.said
