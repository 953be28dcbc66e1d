"""A distillation of models of transformers on chats, as a user runs it; tiny random models are written to disk."""

import hashlib
import json
import os
import random
import shutil
import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from reference_trainer import DataError, ModelFileError, OutputError, SettingError, Settings, distill
from reference_trainer.huggingface.attention import check_isolation, isolate
from reference_trainer.huggingface.chats import Chats, read_chats, write_chats
from reference_trainer.huggingface.models import Causal, load_model, load_tokenizer, save_model
from reference_trainer.huggingface.sources import digest_of
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.pipeline.precompute import precompute
from reference_trainer.storage.export import verify_manifest
from tests.reference_trainer.commands import command
from tests.reference_trainer.forked import Process

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
MARKS = ["<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def conversation(draw: random.Random) -> dict[str, Any]:
    turns = []
    for _ in range(draw.choice([1, 2])):
        words = " ".join(draw.choices(["red", "green", "one", "two", "cat"], k=draw.randint(2, 5)))
        turns += [{"role": "user", "content": f"repeat {words}"}, {"role": "assistant", "content": words}]
    return {"messages": turns}


def tokenizer(text: str, size: int = 300) -> Any:
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer, model.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=MARKS, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    model.train_from_iterator(text.splitlines(), trainer)
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|end|>", pad_token="<|end|>")
    made.chat_template = TEMPLATE
    return made


def write_model(folder: Path, words: Any, width: int, *, weights: bool = True) -> None:
    config = transformers.LlamaConfig(
        vocab_size=len(words),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(width)
        (transformers.LlamaForCausalLM(config) if weights else config).save_pretrained(folder)
    words.save_pretrained(folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_models(tmp_path_factory.mktemp("models"))


def with_models(folder: Path) -> Path:
    """Write chats, a teacher, a student and the configuration of another one; return the folder."""
    draw = random.Random(0)
    text = "\n".join(json.dumps(conversation(draw)) for _ in range(30))
    (folder / "chats.jsonl").write_text(text)
    words = tokenizer(text)
    write_model(folder / "teacher", words, 32)
    write_model(folder / "student", words, 16)
    write_model(folder / "new", words, 16, weights=False)
    return folder


def settings(place: Path, out: Path, **others: Any) -> Settings:
    given: dict[str, Any] = {"teacher": place / "teacher", "student": place / "student", "data": place / "chats.jsonl"}
    given |= {
        "length": 48,
        "batch_size": 2,
        "epochs": 1,
        "warmup": 2,
        "save_every": 4,
        "device": "cpu",
        "hang_after": 0.0,
    }
    return Settings(**given | {"out": out} | others)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("documents", ["pad", "pack"])
def test_trained_student_is_read_by_transformers(place: Path, tmp_path: Path, documents: str) -> None:
    result = distill(settings(place, tmp_path / "out", documents=documents))
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    prompt = words.apply_chat_template(
        [{"role": "user", "content": "repeat red"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        assert torch.equal(saved(prompt["input_ids"]).logits, result.student.eval()(prompt["input_ids"]).logits)
    assert saved.generate(**prompt, max_new_tokens=3).shape[1] > prompt["input_ids"].shape[1]
    assert digest(tmp_path / "out") != digest(place / "student")
    assert result.unit == "token"


def test_saved_models_are_evaluated_on_the_chats_of_their_run(place: Path, tmp_path: Path) -> None:
    """Also models of others with the same tokenizer; one with another is refused, and the others have numbers."""
    distill(settings(place, tmp_path / "out", documents="pack", temperature=1.0, max_steps=2, save_every=2))
    write_model(tmp_path / "other", tokenizer("zebra zebra zoo zoo " * 20, 290), 16)
    models = [tmp_path / "out", tmp_path / "out/checkpoints/student-latest", tmp_path / "other", place / "student"]
    given = ["--data", str(place / "chats.jsonl"), "--teacher", str(place / "teacher"), "--device", "cpu", "--json"]
    ended = command("evaluate", *map(str, models), *given)
    report = json.loads(ended.said)
    assert ended.code == 1 and ended.complaints.count("error: the tokenizers") == 1, ended.complaints
    reported = json.loads((tmp_path / "out/manifest.json").read_text())["held_back"]
    for each in report["models"][:2]:
        assert {name: pytest.approx(total) for name, total in each["sums"].items()} == {
            n: reported[n] for n in each["sums"]
        }
    assert report["models"][2]["sums"] != report["models"][0]["sums"]
    assert (report["documents"], report["unit"]) == ("pack", "token")
    assert report["evaluation"] == json.loads((tmp_path / "out/manifest.json").read_text())["evaluation"]
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    table = command("evaluate", str(moved), "--device", "cpu").said.splitlines()
    count = report["models"][0]["sums"]["hard_loss"]["count"]
    assert table[0] == f"{place / 'chats.jsonl'} (held back): {count} tokens in packed documents of at most 48"
    assert table[2].split()[1] == f"{report['models'][0]['metrics']['hard_loss']:.6g}"


def test_held_back_loss_is_that_of_transformers(place: Path, tmp_path: Path) -> None:
    """The oracle masks by the offsets of the answers in the text, and takes the loss of the model itself."""
    result = distill(settings(place, tmp_path / "out", max_steps=1, dtype="float64", length=200))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float64)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    total, count = 0.0, 0
    for line in (place / "chats.jsonl").read_text().splitlines()[27:]:
        pieces: list[tuple[str, bool]] = []
        for message in json.loads(line)["messages"]:
            pieces += [
                (f"<|{message['role']}|>", False),
                (f"{message['content']}<|end|>", message["role"] == "assistant"),
            ]
        parts = [(token, own) for text, own in pieces for token in words(text)["input_ids"]]
        tokens = torch.tensor([[token for token, _ in parts]])
        labels = torch.tensor([[token if own else -100 for token, own in parts]])
        scored = int((labels[:, 1:] != -100).sum())
        total += float(model(tokens, labels=labels).loss.detach()) * scored
        count += scored
    found = result.held_back["hard_loss"]
    assert found.count == count
    assert found.sum == pytest.approx(total, rel=1e-6)  # transformers takes its loss in float32


def test_run_that_was_cut_ends_as_the_whole_one(place: Path, tmp_path: Path) -> None:
    dropout = {"documents": "pack", "kd_weight": 1.0}
    distill(settings(place, tmp_path / "whole", **dropout))
    distill(settings(place, tmp_path / "cut", max_steps=3, **dropout))
    distill(settings(place, tmp_path / "cut", resume=Path("latest"), force=True, **dropout))
    assert digest(tmp_path / "whole") == digest(tmp_path / "cut")
    export_checkpoint(tmp_path / "whole", "latest", tmp_path / "exported")
    assert digest(tmp_path / "exported") == digest(tmp_path / "whole")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "exported").chat_template == TEMPLATE


def test_long_packed_rows_form_no_mask(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and gradients are those of a mask, in float64; a model that takes no such attention has a line."""
    models, lines = [load_model(place / "student", dtype=torch.float64) for _ in range(2)], list[str]()
    isolate("the student", models[0], lines.append)
    assert lines == []
    tokens = torch.arange(40).view(2, 20) % 100
    segments = torch.tensor([[1] * 7 + [2] * 1 + [3] * 9 + [0] * 3, [1] * 20])
    masked = models[1](tokens, segments).logits
    with monkeypatch.context() as patch:
        patch.setattr("transformers.masking_utils.sdpa_mask", None)  # which would form a mask
        found = models[0](tokens, segments).logits
    assert torch.allclose(found, masked, rtol=0, atol=1e-12)
    for each in (found, masked):
        each.square().sum().backward()
    pairs = zip(models[0].parameters(), models[1].parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-9, atol=1e-12) for a, b in pairs)
    eager = load_model(place / "student", dtype=torch.float64)
    eager.model.set_attn_implementation("eager")
    isolate("the student", eager, lines.append)
    assert lines == ["the student: attention in packed rows forms a mask of length x length"]


def test_window_of_a_model_keeps_its_mask() -> None:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.MistralConfig(vocab_size=64, num_hidden_layers=1, sliding_window=3, **shape)
    models = [Causal(transformers.MistralForCausalLM(config).double()) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    isolate("the student", models[0], print)
    tokens, segments = torch.arange(12)[None], torch.tensor([[1] * 7 + [2] * 5])
    assert torch.allclose(models[0](tokens, segments).logits, models[1](tokens, segments).logits, rtol=0, atol=1e-12)


def test_weights_in_fewer_bits_are_trained_in_float32(place: Path, tmp_path: Path) -> None:
    """Steps far below the spacing of the weights add up, a resumed run has the same bits, and so has its export."""
    bits: dict[str, Any] = {"weights": "bfloat16", "dtype": "bfloat16", "lr": 1e-5, "schedule": "constant", "epochs": 2}
    bits |= {"documents": "pack", "feature_weight": 1.0}
    distill(settings(place, tmp_path / "whole", **bits))
    distill(settings(place, tmp_path / "cut", max_steps=3, **bits))
    distill(settings(place, tmp_path / "cut", resume=Path("latest"), force=True, **bits))
    assert digest(tmp_path / "whole") == digest(tmp_path / "cut")
    saved = load_file(tmp_path / "whole/model.safetensors")
    assert {each.dtype for each in saved.values()} == {torch.bfloat16}
    masters = load_file(next((tmp_path / "whole/checkpoints").glob("student-step*/rank-00000.safetensors")))
    name = "model.layers.0.mlp.up_proj.weight"
    master = masters[f"optimizer.student.model.{name}.master"]
    began = load_model(place / "student", dtype=torch.bfloat16).state_dict()[f"model.{name}"].float()
    moved = (master - began).abs()
    assert 5e-5 < moved.max() < 1e-3 and moved.ne(0).float().mean() > 0.9
    assert (saved[name].float() - began).ne(0).float().mean() < 0.9, "most updates are below the spacing"
    with pytest.raises(SettingError, match="--weights bfloat16 needs --dtype bfloat16"):
        distill(settings(place, tmp_path / "out", weights="bfloat16"))


def test_two_ranks_end_as_one_process_with_the_doubled_batch(place: Path, tmp_path: Path) -> None:
    given = ["--teacher", place / "teacher", "--student", place / "student", "--data", place / "chats.jsonl"]
    command = ["distill", *map(str, given), "--length", "48", "--epochs", "1", "--warmup", "2", "--dtype", "float64"]
    command += ["--device", "cpu", "--save-every", "0", "--ce-weight", "0.3", "--kd-weight", "0.7"]
    command += ["--temperature", "2"]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])}
    two = [{**shared, "WORLD_SIZE": "2", "RANK": str(rank)} for rank in range(2)]
    started = [
        Process([*command, "--batch-size", batch, "--out", str(tmp_path / name)], tmp_path, environment)
        for name, batch, environments in (("one", "4", [os.environ]), ("two", "2", two))
        for environment in environments
    ]
    for process in started:
        assert process.wait() == 0, process.stderr.read()
    weights = [
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float64).state_dict()
        for name in ("one", "two")
    ]
    assert all(torch.allclose(weights[0][name], weights[1][name], rtol=0, atol=1e-7) for name in weights[0])


def test_student_without_weights_is_drawn_from_the_seed(place: Path, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        distill(settings(place, tmp_path / name, student=place / "new", seed=seed, max_steps=1, lr=1e-9, save_every=0))
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")
    assert torch.equal(before, torch.get_rng_state())


def test_hidden_states_of_other_widths_are_matched_and_activations_recomputed(place: Path, tmp_path: Path) -> None:
    plain, recomputed = (
        distill(settings(place, tmp_path / str(flag), feature_weight=1.0, checkpoint_activations=flag, save_every=0))
        for flag in (False, True)
    )
    assert plain.held_back.keys() == recomputed.held_back.keys()
    assert digest(tmp_path / "False") == digest(tmp_path / "True")


def test_operations_of_a_step_are_counted(place: Path, tmp_path: Path) -> None:
    distill(settings(place, tmp_path / "out", log_every=2, save_every=0))
    lines = (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["metrics"]["flops_per_s"] > 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"teacher": None}, SettingError, "--student needs --teacher"),
        ({"data": None}, SettingError, "--student needs --data"),
        ({"data": Path("missing.jsonl")}, DataError, "cannot read missing.jsonl"),
    ],
)
def test_what_is_missing_is_named(
    place: Path, tmp_path: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        distill(settings(place, tmp_path / "out", **change))


def test_folder_without_a_model_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match="expected a model of transformers"):
        distill(settings(place, tmp_path / "out", teacher=tmp_path / "empty"))


def test_other_tokenizer_is_refused(place: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "other", tokenizer("zebra zebra zoo zoo " * 20, 290), 16)
    with pytest.raises(SettingError, match="the tokenizers of teacher and student differ in"):
        distill(settings(place, tmp_path / "out", teacher=tmp_path / "other"))


def test_outputs_of_a_teacher_replace_it_for_the_same_tokenizer_and_template(place: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"documents": "pack", "save_every": 0}
    live = distill(settings(place, tmp_path / "live", **given))
    outputs = precompute(settings(place, tmp_path / "outputs", **given))
    given |= {"teacher": None, "teacher_outputs": outputs}
    stored = distill(settings(place, tmp_path / "stored", **given))
    assert digest(tmp_path / "stored") == digest(tmp_path / "live")
    assert stored.held_back == live.held_back
    written = json.loads((outputs / "manifest.json").read_text())
    assert written["teacher_sha256"] == digest(place / "teacher")
    shutil.copytree(place / "student", tmp_path / "other")
    (tmp_path / "other" / "chat_template.jinja").write_text(TEMPLATE + "{# another #}")
    with pytest.raises(SettingError, match="chat_template_sha256 was"):
        distill(settings(place, tmp_path / "out", **given | {"student": tmp_path / "other"}))


def test_device_map_is_that_of_from_pretrained(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="from_pretrained needs it for a device_map")
    teacher = load_model(place / "teacher", dtype="auto", device_map="meta")
    assert all(each.is_meta for each in teacher.parameters())
    result = distill(settings(place, tmp_path / "out", teacher_device_map="auto", max_steps=1, save_every=0))
    assert not any(each.is_meta for each in result.teacher.parameters())


def test_parquet_has_the_rows_of_json_lines(place: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in (place / "chats.jsonl").read_text().splitlines()]
    parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), tmp_path / "chats.parquet")
    for name, data in (("lines", place / "chats.jsonl"), ("parquet", tmp_path / "chats.parquet")):
        distill(settings(place, tmp_path / name, data=data, max_steps=2, save_every=0))
    assert digest(tmp_path / "lines") == digest(tmp_path / "parquet")


def chats_of(data: Path, place: Path, folder: Path) -> Chats:
    stored = folder / f"{data.name}-tokens"
    stored.mkdir(exist_ok=True)
    write_chats(data, load_tokenizer(place / "student"), 99, stored)
    return read_chats(stored)


def test_tokens_are_made_once_and_smoke_runs_leave_none(place: Path, tmp_path: Path) -> None:
    """Another length has other ones; a cache that cannot be written names its setting."""
    given: dict[str, Any] = {"data_cache": tmp_path / "cache", "max_steps": 1, "save_every": 0}
    distill(settings(place, tmp_path / "smoke", **given | {"smoke": 1, "max_steps": None}))
    assert not (tmp_path / "cache").exists()
    made = set[int]()
    for name, others, entries in (("a", {}, 1), ("b", {}, 1), ("c", {"length": 40}, 2)):
        distill(settings(place, tmp_path / name, **given | others))
        made |= {each.stat().st_mtime_ns for each in (tmp_path / "cache").glob("chats-*")}
        assert len(made) == entries
    with pytest.raises(OutputError, match="use --data-cache to choose another directory"):
        distill(settings(place, tmp_path / "d", **given | {"data_cache": place / "chats.jsonl"}))


def test_saved_dataset_has_the_rows_of_its_shards_in_order(place: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [json.loads(line) for line in (place / "chats.jsonl").read_text().splitlines()]
    whole = datasets.Dataset.from_list(rows)
    whole.save_to_disk(tmp_path / "data", num_shards=12)
    datasets.DatasetDict({"train": whole}).save_to_disk(tmp_path / "splits")
    found, lines = (chats_of(each, place, tmp_path) for each in (tmp_path / "data", place / "chats.jsonl"))
    digest = digest_of(tmp_path / "data")
    assert all(map(torch.equal, (d.tokens for d in found.documents), (d.tokens for d in lines.documents)))
    assert len(found.documents) == len(lines.documents) == 30 and digest != digest_of(place / "chats.jsonl")
    with pytest.raises(DataError, match=r"splits is not a saved dataset.*such as .*splits/train"):
        chats_of(tmp_path / "splits", place, tmp_path)
    (tmp_path / "data/data-00001-of-00012.arrow").write_bytes(b"other")
    assert digest_of(tmp_path / "data") != digest
    with pytest.raises(DataError, match=r"data-00001-of-00012\.arrow is not an Arrow stream"):
        chats_of(tmp_path / "data", place, tmp_path)


class Summing(torch.nn.Module):
    """A model that ignores positions: each token sees all before it in the row."""

    config = transformers.LlamaConfig(vocab_size=16)

    def forward(self, input_ids: torch.Tensor, **options: Any) -> Any:
        return SimpleNamespace(logits=torch.nn.functional.one_hot(input_ids, 16).double().cumsum(1))


def test_model_in_which_packed_documents_see_each_other_is_refused() -> None:
    with pytest.raises(SettingError, match="the documents of a packed row see each other in Summing"):
        check_isolation("the student", Causal(Summing()))


def test_manifest_has_the_digests_of_weights_in_several_files(place: Path, tmp_path: Path) -> None:
    model = load_model(place / "student", dtype=torch.float32)
    (tmp_path / "model.safetensors").write_bytes(b"of an older run")
    save: Any = model.model
    save.save_pretrained = partial(save.save_pretrained, max_shard_size="10KB")
    save_model(model, load_tokenizer(place / "student"), tmp_path, {})
    verify_manifest(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelFileError, match="does not match"):
        verify_manifest(tmp_path)
