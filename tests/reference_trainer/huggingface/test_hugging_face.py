"""A distillation of models of transformers on chats, as a user runs it; tiny random models are written to disk."""

import io
import json
import shutil
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from reference_trainer import DataError, Lines, ModelFileError, OutputError, SettingError, distill, read_metrics
from reference_trainer.errors import DriftError
from reference_trainer.huggingface.models import Source, load_model, load_tokenizer, save_model
from reference_trainer.huggingface.parts import HuggingFace
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.pipeline.precompute import precompute
from reference_trainer.storage.export import verify_manifest
from reference_trainer.supervision.progress import check_model
from tests.pages import BLOCK
from tests.reference_trainer.commands import command
from tests.reference_trainer.huggingface import small_models
from tests.reference_trainer.huggingface.small_models import digest, run_ranks, settings, tokenizer, write_model

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("documents", ["pad", "pack"])
def test_trained_student_is_read_by_transformers(place: Path, tmp_path: Path, documents: str) -> None:
    result = distill(settings(place, tmp_path / "out", documents=documents, log_every=2))
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    request = [{"role": "user", "content": "repeat red"}]
    prompt = words.apply_chat_template(request, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        assert torch.equal(saved(prompt["input_ids"]).logits, result.student.eval()(prompt["input_ids"]).logits)
    assert saved.generate(**prompt, max_new_tokens=3).shape[1] > prompt["input_ids"].shape[1]
    assert digest(tmp_path / "out") != digest(place / "student")
    assert result.unit == "token" and result.train.metrics["flops_per_s"] > 0


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _lose_a_tensor(path: Path) -> None:
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def _write_cut_pickle(path: Path) -> None:
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    _cut(path.with_name("pytorch_model.bin"))
    path.unlink()


def _write_empty_pickle(path: Path) -> None:
    path.with_name("pytorch_model.bin").touch()
    path.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", _cut),
        ("model.safetensors", lambda path: path.write_bytes(b"")),
        ("model.safetensors", _lose_a_tensor),
        ("model.safetensors", _write_cut_pickle),
        ("model.safetensors", _write_empty_pickle),
        ("tokenizer.json", lambda path: path.write_text('{"version": "1.0"}')),
        ("config.json", lambda path: path.write_text('{"model_type": "llama", "hidden_size": "many"}')),
    ],
    ids=["weights cut", "weights empty", "tensor missing", "pickle cut", "pickle empty", "tokenizer", "configuration"],
)
def test_damaged_model_is_refused(place: Path, tmp_path: Path, name: str, damage: Any) -> None:
    student = shutil.copytree(place / "student", tmp_path / "student")
    damage(student / name)
    paths = {"teacher": place / "teacher", "student": student, "data": place / "chats.jsonl", "out": tmp_path / "out"}
    ended = command("distill", "--length=48", "--device=cpu", *(f"--{name}={path}" for name, path in paths.items()))
    assert ended.code == 1 and f"cannot load {student}" in ended.complaints, ended
    assert "Traceback" not in ended.complaints and not (tmp_path / "out").exists()


def test_mistyped_path_is_said_to_be_missing(place: Path, tmp_path: Path) -> None:
    """Without asking the hub, unless it may be the id of a model."""
    for name, wrong in (("teacher", "taecher"), ("student", "studnet"), ("data", "chat.jsonl")):
        right = "chats.jsonl" if name == "data" else name
        with pytest.raises((ModelFileError, DataError), match=f"[Nn]o such.*did you mean '{place / right}'") as refused:
            distill(settings(place, tmp_path / "out", **{name: place / wrong}))
        assert "connect" not in str(refused.value)
    with pytest.raises(ModelFileError, match=rf"did you mean '{place}/checkpoints/one'"):
        (place / "checkpoints").mkdir()
        load_model(place / "checkpoint" / "one", dtype="auto")


def test_name_that_is_neither_directory_nor_id_is_said_to_be_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFileError, match="no-model-of-anyone: there is no such directory, and as the id of"):
        load_tokenizer(Path("no-model-of-anyone"))


def test_weights_of_torch_save_are_read(place: Path, tmp_path: Path) -> None:
    for name in ("teacher", "student"):
        shutil.copytree(place / name, tmp_path / name)
        torch.save(load_file(tmp_path / name / "model.safetensors"), tmp_path / name / "pytorch_model.bin")
        (tmp_path / name / "model.safetensors").unlink()
    models = {name: tmp_path / name for name in ("teacher", "student")}
    distill(settings(place, tmp_path / "bin", max_steps=1, **models))
    distill(settings(place, tmp_path / "safetensors", max_steps=1))
    assert digest(tmp_path / "bin") == digest(tmp_path / "safetensors")


@pytest.mark.parametrize(("name", "words"), [("student", "cannot be trained"), ("teacher", "cannot be divided")])
def test_quantized_weights_that_cannot_be_used_are_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    def load(source: Any, **options: Any) -> Any:
        model = load_model(source, **options)
        model.model.is_quantized = source.place.name == name
        return model

    monkeypatch.setattr("reference_trainer.huggingface.parts.load_model", load)
    monkeypatch.setattr(HuggingFace, "is_sharded", name == "teacher")
    monkeypatch.setattr("reference_trainer.huggingface.parts.load_skeleton", lambda *_, **__: None)
    with pytest.raises(SettingError, match=f"--{name} .*{words}"):
        distill(settings(place, tmp_path / "out"))


def test_model_of_hugging_face_without_its_flag_is_named(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"invalid model_type 'llama'.*load a model of Hugging Face by --student"):
        distill(settings(place, tmp_path / "out", student=None))


def test_saved_models_are_evaluated_on_the_chats_of_their_run(place: Path, tmp_path: Path) -> None:
    """Also models of others with the same tokenizer; one with another is refused, and the others have numbers."""
    distill(settings(place, tmp_path / "out", documents="pack", temperature=1.0, max_steps=2, save_every=2))
    write_model(tmp_path / "other", tokenizer("zebra zebra zoo zoo " * 20, 290), 16)
    models = [tmp_path / "out", tmp_path / "out/checkpoints/student-latest", tmp_path / "other", place / "student"]
    options = ["--data", str(place / "chats.jsonl"), "--teacher", str(place / "teacher"), "--device", "cpu", "--json"]
    ended = command("evaluate", *map(str, models), *options)
    report = json.loads(ended.output)
    assert ended.code == 1 and ended.complaints.count("error: the tokenizers") == 1, ended.complaints
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    for entry in report["models"][:2]:
        assert entry["sums"] == {name: pytest.approx(manifest["held_back"][name]) for name in entry["sums"]}
    assert report["models"][2]["sums"] != report["models"][0]["sums"]
    assert (report["documents"], report["unit"]) == ("pack", "token")
    assert report["evaluation"] == manifest["evaluation"]
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    table = command("evaluate", str(moved), "--device", "cpu").output.splitlines()
    count = report["models"][0]["sums"]["hard_loss"]["count"]
    assert table[0] == f"{place / 'chats.jsonl'} (held back): {count} tokens in packed documents of at most 48"
    assert table[2].split()[1] == f"{report['models'][0]['metrics']['hard_loss']:.6g}"


def test_weights_in_fewer_bits_are_trained_in_float32(place: Path, tmp_path: Path) -> None:
    """Steps far below the spacing of the weights add up, a resumed run has the same bits, and so has its export."""
    bits: dict[str, Any] = {"weights": "bfloat16", "dtype": "bfloat16", "lr": 1e-5, "schedule": "constant", "epochs": 2}
    bits |= {"documents": "pack", "feature_weight": 1.0}
    distill(settings(place, tmp_path / "whole", **bits))
    distill(settings(place, tmp_path / "cut", max_steps=3, **bits))
    distill(settings(place, tmp_path / "cut", resume=Path("latest"), force=True, **bits))
    export_checkpoint(tmp_path / "whole", "latest", tmp_path / "exported")
    assert digest(tmp_path / "whole") == digest(tmp_path / "cut") == digest(tmp_path / "exported")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "exported").chat_template == small_models.TEMPLATE
    saved = load_file(tmp_path / "whole/model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}
    masters = load_file(next((tmp_path / "whole/checkpoints").glob("student-step*/rank-00000.safetensors")))
    name = "model.layers.0.mlp.up_proj.weight"
    master = masters[f"optimizer.student.model.{name}.master"]
    began = load_model(place / "student", dtype=torch.bfloat16).state_dict()[f"model.{name}"].float()
    moved = (master - began).abs()
    assert 5e-5 < moved.max() < 1e-3 and moved.ne(0).float().mean() > 0.9
    assert (saved[name].float() - began).ne(0).float().mean() < 0.9, "most updates are below the spacing"
    with pytest.raises(SettingError, match="--weights bfloat16 needs --dtype bfloat16"):
        distill(settings(place, tmp_path / "out", weights="bfloat16"))


def test_weights_are_trained_in_float32_with_dtype_bfloat16(place: Path, tmp_path: Path) -> None:
    """Without --weights, the model computes in fewer bits, and its weights and their updates are not rounded."""
    student = distill(settings(place, tmp_path / "out", dtype="bfloat16", max_steps=1, save_every=0)).student
    assert {weight.dtype for weight in student.parameters()} == {torch.float32}, "--dtype bfloat16 rounds the weights"
    saved = load_file(tmp_path / "out/model.safetensors")
    assert {weight.dtype for weight in saved.values()} == {torch.float32}, "--dtype bfloat16 rounds the saved weights"


def test_sharded_weights_in_fewer_bits_are_those_of_one_process(place: Path, tmp_path: Path) -> None:
    options = "--weights bfloat16 --dtype bfloat16 --max-steps 3 --save-every 0".split()
    run_ranks(place, tmp_path / "one", 1, *options, "--batch-size", "2", "--accumulate", "2")
    run_ranks(place, tmp_path / "two", 2, *options, "--strategy", "fsdp2")
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_hidden_states_of_other_widths_are_matched_and_activations_recomputed(place: Path, tmp_path: Path) -> None:
    plain, recomputed = (
        distill(settings(place, tmp_path / str(flag), feature_weight=1.0, checkpoint_activations=flag, save_every=0))
        for flag in (False, True)
    )
    assert plain.held_back.keys() == recomputed.held_back.keys()
    assert digest(tmp_path / "False") == digest(tmp_path / "True")


def test_outputs_of_a_teacher_replace_it_for_the_same_tokenizer_and_template(place: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"documents": "pack", "save_every": 0}
    live = distill(settings(place, tmp_path / "live", **options))
    outputs = precompute(settings(place, tmp_path / "outputs", **options))
    options |= {"teacher": None, "teacher_outputs": outputs}
    stored = distill(settings(place, tmp_path / "stored", **options))
    assert digest(tmp_path / "stored") == digest(tmp_path / "live")
    assert stored.held_back == live.held_back
    written = json.loads((outputs / "manifest.json").read_text())
    assert (written["teacher_sha256"], written["of"]["documents"]) == (digest(place / "teacher"), "pack")
    shutil.copytree(place / "student", tmp_path / "other")
    (tmp_path / "other" / "chat_template.jinja").write_text(small_models.TEMPLATE + "{# another #}")
    with pytest.raises(SettingError, match="chat_template_sha256 was"):
        distill(settings(place, tmp_path / "out", **options | {"student": tmp_path / "other"}))


def test_what_needs_no_data_is_refused_before_they_are_read(place: Path, tmp_path: Path) -> None:
    """Tokens of a large file take minutes; the cache shows whether they were made."""
    distill(settings(place, tmp_path / "run", max_steps=1, save_every=1))
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (distill, {"out": Path("/proc/out")}, OutputError, "cannot create /proc/out"),
        (precompute, {"out": Path("/proc/out")}, OutputError, "cannot create /proc/out.partial"),
        (distill, {"out": tmp_path / "run"}, OutputError, "files of a complete run"),
        (distill, {"out": tmp_path / "run", "resume": "latest", "force": True, "lr": 0.1}, DriftError, "lr was"),
        (distill, {"student": place / "new", "lora": 2}, SettingError, "--lora needs a trained student"),
        (distill, {"weights": "bfloat16"}, SettingError, "--weights bfloat16 needs"),
    ]
    for number, (work, change, error, message) in enumerate(refused):
        cache = tmp_path / f"cache{number}"
        with pytest.raises(error, match=message):
            work(settings(place, change.pop("out", tmp_path / "out"), data_cache=cache, **change))
        assert not cache.exists(), message


def test_outputs_need_the_space_that_they_take(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits in bfloat16 take 2 bytes each."""
    load_model(place / "teacher", dtype=torch.bfloat16).model.save_pretrained(tmp_path / "teacher")
    load_tokenizer(place / "teacher").save_pretrained(tmp_path / "teacher")
    settings_for = partial(settings, place, teacher=tmp_path / "teacher")
    for top_k in (None, 4):
        written = precompute(settings_for(tmp_path / f"first{top_k}"), top_k=top_k)
        size = sum(file.stat().st_size for file in written.glob("outputs-*"))
        for part, is_enough in ((1.0, True), (0.9, False)):
            monkeypatch.setattr(shutil, "disk_usage", lambda path, free=int(part * size): SimpleNamespace(free=free))
            with nullcontext() if is_enough else pytest.raises(OutputError, match="bytes free, the results need"):
                precompute(settings_for(tmp_path / f"{top_k} {part}"), top_k=top_k)
        monkeypatch.undo()


def test_device_map_is_that_of_from_pretrained(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="from_pretrained needs it for a device_map")
    teacher = load_model(Source(place=place / "teacher", device_map="meta"), dtype="auto")
    assert all(weight.is_meta for weight in teacher.parameters())
    result = distill(settings(place, tmp_path / "out", teacher_device_map="auto", max_steps=1, save_every=0))
    assert not any(weight.is_meta for weight in result.teacher.parameters())


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


PAGE = Path(__file__).parents[3] / "docs/trainer-extension.md"
PROMPTS = ["repeat red", "repeat two cat"]


def example(file: str) -> str:
    """Return a file of the documentation."""
    (body,) = (body for _, info, body in BLOCK.findall(PAGE.read_text()) if f"file={file}" in info)
    return body


def samples() -> Any:
    names: dict[str, Any] = {}
    exec(example("samples.py"), names)
    return names["Samples"](PROMPTS, 5)


def test_parts_of_hugging_face_are_subclassed_and_named(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented class; its run is resumed, exported and evaluated like a run of the class it extends."""
    (tmp_path / "frozen_layers.py").write_text(example("frozen_layers.py"))
    monkeypatch.syspath_prepend(tmp_path)
    parts = {"parts": "frozen_layers:TopOnly", "eval_rows": 0}
    result = distill(settings(place, tmp_path / "out", **parts))
    before, after = (load_file(folder / "model.safetensors") for folder in (place / "student", tmp_path / "out"))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all(name.startswith(("model.layers.1.", "model.norm", "lm_head")) for name in moved), moved
    export_checkpoint(tmp_path / "out", "latest", tmp_path / "exported")
    assert digest(tmp_path / "exported") == digest(tmp_path / "out")
    ended = command("evaluate", str(tmp_path / "out"), str(tmp_path / "exported"), "--device", "cpu", "--json")
    assert ended.code == 0, ended.complaints
    expected = pytest.approx(result.held_back["hard_loss"].sum, rel=1e-6)
    assert [model["sums"]["hard_loss"]["sum"] for model in json.loads(ended.output)["models"]] == [expected, expected]


@pytest.mark.parametrize("has_eval_data", [False, True])
def test_evaluated_conversations_are_few_evenly_spaced_and_of_the_file_that_is_named(
    place: Path, tmp_path: Path, has_eval_data: bool
) -> None:
    """The command `evaluate` has the numbers of the run, also over another choice."""
    lines = (place / "chats.jsonl").read_text().splitlines()
    (tmp_path / "own.jsonl").write_text("\n".join(lines[::-1]))
    rows: dict[str, Any] = {"eval_rows": 2, "length": 200, "max_steps": 1}
    rows |= {"eval_data": tmp_path / "own.jsonl"} if has_eval_data else {}
    output = io.StringIO()
    result = distill(settings(place, tmp_path / "out", **rows), lines=Lines(output))
    steps = json.loads((tmp_path / "out/manifest.json").read_text())["optimizer"]
    assert steps, "the manifest has no optimizer"
    total = 30 if has_eval_data else 3
    assert f"data: 2 of {total} held-back conversations are evaluated; see --eval-rows" in output.getvalue()
    pool = lines[::-1] if has_eval_data else lines[27:]
    chosen = [pool[0], pool[15 if has_eval_data else 1]]
    (tmp_path / "chosen.jsonl").write_text("\n".join(chosen))
    runs = ["evaluate", str(tmp_path / "out"), "--device", "cpu", "--json"]
    for options in ([], ["--data", str(tmp_path / "chosen.jsonl"), "--whole"]):
        ended = command(*runs, *options)
        assert ended.code == 0, ended.complaints
        report = json.loads(ended.output)
        sums = report["models"][0]["sums"]["hard_loss"]
        expected = result.held_back["hard_loss"]
        assert sums == {"sum": pytest.approx(expected.sum, rel=1e-6), "count": expected.count}, options
        part = f"{'whole' if has_eval_data else 'held back'}, 2 conversations"
        assert report["evaluation"]["part"] == ("whole" if options else part)
    with pytest.raises(DriftError, match=f'evaluated was "2 of {total}" and is absent'):
        distill(settings(place, tmp_path / "out", **rows | {"eval_rows": 0, "resume": Path("latest"), "force": True}))
    trained = 30 if has_eval_data else 27
    again = distill(settings(place, tmp_path / "more", **rows | {"max_steps": None, "batch_size": 1}))
    assert again.train.steps_completed == trained


def test_pretrained_student_has_a_rate_that_does_not_ruin_it(place: Path, tmp_path: Path) -> None:
    """It is said, recorded, and does not keep a resumed or supervised run from going on; a new student has another."""
    output = io.StringIO()
    usual = settings(place, tmp_path / "out", max_steps=1)
    distill(usual, lines=Lines(output))
    assert "defaults of a student with weights: --lr 2e-05 --clip 1.0 --dtype float32\n" in output.getvalue()
    assert json.loads((tmp_path / "out/manifest.json").read_text())["settings"]["lr"] == 2e-5
    check_model(tmp_path / "out", usual)
    distill(settings(place, tmp_path / "out", max_steps=2, resume=Path("latest"), force=True))
    for name, others, rate in (("new", {"student": place / "new"}, 3e-3), ("chosen", {"lr": 3e-3}, 3e-3)):
        output = io.StringIO()
        distill(settings(place, tmp_path / name, max_steps=1, save_every=0, **others), lines=Lines(output))
        assert json.loads((tmp_path / name / "manifest.json").read_text())["settings"]["lr"] == rate
        assert "--lr" not in output.getvalue()


def test_smoke_check_says_no_go_to_a_rate_that_ruins_the_student(place: Path, tmp_path: Path) -> None:
    """A student that is its teacher has no loss to begin with; only a fault can raise it."""
    options: dict[str, Any] = {"student": place / "teacher", "smoke": 4, "warmup": 0}
    ruined = distill(settings(place, tmp_path / "out", lr=0.3, **options))
    (failed,) = (check.says for check in ruined.checks if not check.passed)
    assert failed.startswith("loss of the first batch 0.0000 before"), failed
    assert distill(settings(place, tmp_path / "out", **options)).go


def test_samples_are_those_of_the_saved_model_and_leave_the_run_as_it_is(place: Path, tmp_path: Path) -> None:
    """With dropout, so that another mode or random state gives other weights."""
    student = shutil.copytree(place / "student", tmp_path / "student")
    config = json.loads((student / "config.json").read_text()) | {"attention_dropout": 0.3}
    (student / "config.json").write_text(json.dumps(config))
    output, logged, weights = io.StringIO(), [], []
    for name, callbacks in (("without", []), ("with", [samples()])):
        options: dict[str, Any] = {"student": student, "eval_every": 2, "max_steps": 4, "log_every": 1}
        distill(settings(place, tmp_path / name, **options), callbacks=callbacks, lines=Lines(output))
        logged.append([(line.step, line.metrics["loss"]) for line in read_metrics(tmp_path / name / "metrics.jsonl")])
        files = ["model.safetensors", "generation_config.json", "checkpoints/student-step4/rank-00000.safetensors"]
        weights.append([(tmp_path / name / file).read_bytes() for file in files])
    assert logged[0] == logged[1] and weights[0] == weights[1]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "with")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "with")
    for prompt in PROMPTS:
        chat = [{"role": "user", "content": prompt}]
        inputs = words.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        tokens = inputs["input_ids"]
        for _ in range(5):  # none of these is the end of a text
            best = model(tokens).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
        text = words.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert f"step 4: {prompt!r} -> {text!r}" in output.getvalue().splitlines()
    assert output.getvalue().count("step 2: ") == len(PROMPTS)
