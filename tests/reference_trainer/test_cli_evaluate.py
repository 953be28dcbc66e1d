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
    assert about.endswith(f"bytes in sequences of 64, against {models[0]}")
    assert head.split()[:4] == ["model", "hard_loss", "token_accuracy", "kl_at_1"]
    assert [line.split()[0] for line in lines] == models
    assert lines[0].split()[3:5] == ["0", "1"]


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
        (["missing", "--data", "no-text"], 1, "no-text"),
    ],
)
def test_refusal_names_what_is_wrong(arguments: list[str], code: int, words: str) -> None:
    """Exit code 2 for a wrong option, 1 for a file that cannot be used, with one line."""
    ended = command("evaluate", *arguments)
    assert ended.code == code and words in ended.complaints and not ended.said


def test_model_that_does_not_fit_leaves_the_others_and_fails(tmp_path: Path) -> None:
    """Exit code 1 and a line for each model that has no numbers; the others have theirs."""
    models = [saved(tmp_path, "a", 1), str(tmp_path / "missing"), saved(tmp_path, "b", 2)]
    ended = command("evaluate", *models, "--device", "cpu")
    assert ended.code == 1
    assert [line.split()[0] for line in ended.said.splitlines()[2:]] == [models[0], models[2]]
    (line,) = ended.complaints.splitlines()
    assert line.startswith(f"error: {models[1]} has no manifest.json")


def test_directory_of_an_own_model_is_refused_in_words(tmp_path: Path) -> None:
    path = Path(saved(tmp_path, "a", 1))
    (path / "manifest.json").write_text('{"settings": {"length": 128}}')
    ended = command("evaluate", str(path), "--device", "cpu")
    hint = "expected the directory of a model written by reference-trainer"
    assert ended.complaints == f"error: cannot verify {path}/manifest.json: missing key 'sha256'; {hint}\n"


def test_first_run_decides_how_all_are_evaluated(tmp_path: Path) -> None:
    given = {"length": 17, "documents": "pack"}
    models = [saved(tmp_path, "a", 1), saved(tmp_path, "b", 2)]
    manifest = Path(models[1], "manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "settings": given}))
    ended = command("evaluate", *models, "--device", "cpu")
    assert ended.code == 0, ended.complaints
    assert ended.said.splitlines()[0].endswith(" bytes in packed documents of at most 17")
