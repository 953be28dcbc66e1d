"""Own parts beside parts of Hugging Face, and settings of how models are loaded, compiled and optimized."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Lines, PackageError, SettingError, distill, read_metrics
from reference_trainer.errors import DriftError, ModelFileError
from reference_trainer.huggingface import models
from reference_trainer.huggingface.models import Source, load_model, load_tokenizer
from tests.pages import BLOCK
from tests.reference_trainer.commands import command
from tests.reference_trainer.huggingface.small_models import digest, settings

transformers = pytest.importorskip("transformers")
PAGE = Path(__file__).parents[3] / "docs/trainer-extension.md"


@pytest.fixture
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of the documentation."""
    (body,) = (body for _, info, body in BLOCK.findall(PAGE.read_text()) if "file=own_parts.py" in info)
    (tmp_path / "own_parts.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "own_parts", raising=False)
    return __import__("own_parts")


def losses(out: Path) -> list[float]:
    return [line.metrics["loss"] for line in read_metrics(out / "metrics.jsonl")]


@pytest.mark.parametrize("name", ["Smoothed", "Separate", "Even", "Watched"])
def test_documented_class_replaces_one_part_on_the_command_line(
    place: Path, tmp_path: Path, own_parts: Any, name: str
) -> None:
    paths = {"teacher": place / "teacher", "student": place / "student", "data": place / "chats.jsonl"}
    options = [f"--{option}={path}" for option, path in paths.items()]
    options += ["--length=48", "--batch-size=2", "--max-steps=3", "--log-every=1", "--save-every=0", "--device=cpu"]
    ended = command("distill", *options, f"--parts=own_parts:{name}", f"--out={tmp_path / 'out'}")
    assert ended.code == 0, ended.complaints
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    seen = {
        "Smoothed": manifest["optimizer"]["name"] == "SGD",
        "Separate": "conversations of a batch have like lengths" in ended.output,
        "Even": manifest["held_back"]["hard_loss"]["count"] > 60,
        "Watched": "loss of step 3:" in ended.output,
    }
    assert seen[name], ended.output


def test_documented_class_is_a_library_too(place: Path, tmp_path: Path, own_parts: Any) -> None:
    with own_parts.Smoothed(settings(place, tmp_path / "out", max_steps=1), lines=Lines(io.StringIO())) as run:
        run.prepare()
        result = run.conclude(run.run())
    assert isinstance(run.optimizer, torch.optim.SGD) and result.train.steps_completed == 1


def test_attention_of_both_models_is_chosen(place: Path, tmp_path: Path) -> None:
    result = distill(settings(place, tmp_path / "out", attn_implementation="eager", max_steps=1))
    both: Any = (result.student, result.teacher)
    assert [model.model.config._attn_implementation for model in both] == ["eager", "eager"]


@pytest.mark.parametrize(("name", "kind"), [("flash_attention_2", PackageError), ("no_such_attention", SettingError)])
def test_attention_that_is_not_available_is_refused_by_name(
    place: Path, tmp_path: Path, name: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=f"^attn_implementation: cannot use {name} in {place / 'student'}: "):
        distill(settings(place, tmp_path / "out", attn_implementation=name))
    assert not (tmp_path / "out").exists()


def test_optimizer_that_cannot_be_imported_is_refused_before_the_data_are_tokenized(
    place: Path, tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {"optimizer": "no_such_package.optim:AdamW8bit", "data_cache": tmp_path / "cache"}
    with pytest.raises(SettingError, match=r"^optimizer: cannot import no_such_package\.optim"):
        distill(settings(place, tmp_path / "out", **chosen))
    assert not (tmp_path / "cache").exists()


def test_flex_attention_on_the_cpu_needs_packed_rows(place: Path, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"attn_implementation": "flex_attention", "device": "cpu", "max_steps": 1}
    with pytest.raises(
        SettingError, match=r"flex_attention cannot train on the CPU, .*; use sdpa, or --documents pack"
    ):
        distill(settings(place, tmp_path / "out", **chosen))
    assert distill(settings(place, tmp_path / "out", documents="pack", **chosen)).train.steps_completed == 1


def test_machine_without_a_compiler_is_named(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(models, "BACKEND", backend)
    with pytest.raises(SettingError, match=r"^compile: cannot compile on cpu: .*; install a compiler, or leave out"):
        distill(settings(place, tmp_path / "out", compile=True))


CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own_llama"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def test_code_of_a_model_is_executed_only_if_trusted(place: Path, tmp_path: Path) -> None:
    """The output has the code, too."""
    student = shutil.copytree(place / "student", tmp_path / "student")
    (student / "own_model.py").write_text(CODE)
    config = json.loads((student / "config.json").read_text()) | {"model_type": "own_llama"}
    config["auto_map"] = {"AutoConfig": "own_model.OwnConfig", "AutoModelForCausalLM": "own_model.OwnModel"}
    (student / "config.json").write_text(json.dumps(config))
    chosen = settings(place, tmp_path / "out", student=student, max_steps=1)
    with pytest.raises(ModelFileError, match=r"it has code, for AutoConfig, .*then use --trust-remote-code"):
        distill(chosen)
    result = distill(chosen.model_copy(update={"trust_remote_code": True}))
    assert type(result.student.model).__name__ == "OwnModel"
    source = Source(place=tmp_path / "out", trust_remote_code=True)
    assert type(load_model(source, dtype="auto").model).__name__ == "OwnModel"
    ended = command("evaluate", str(tmp_path / "out"), "--device=cpu", "--trust-remote-code")
    assert ended.code == 0, ended.complaints
    assert command("evaluate", str(tmp_path / "out"), "--device=cpu").code == 1


def test_revisions_are_those_of_each_model(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its tokenizer and configuration, too; the manifest has them, and a resumed run compares them."""
    asked: set[tuple[str, str | None]] = set()

    def watched(name: str) -> None:
        kind = getattr(transformers, name)
        original = kind.from_pretrained

        def from_pretrained(path: str, *args: Any, **options: Any) -> Any:
            asked.add((Path(path).name, options.get("revision")))
            return original(path, *args, **options)

        monkeypatch.setattr(kind, "from_pretrained", from_pretrained)

    for name in ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"):
        watched(name)
    chosen = settings(place, tmp_path / "out", revision="v1", teacher_revision="v2", max_steps=4)
    distill(chosen)
    assert {pair for pair in asked if pair[0] in ("student", "teacher")} == {("student", "v1"), ("teacher", "v2")}
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())["settings"]
    assert (manifest["revision"], manifest["teacher_revision"]) == ("v1", "v2")
    more = {"resume": Path("latest"), "force": True, "max_steps": 5, "teacher_revision": "v3"}
    with pytest.raises(DriftError, match='teacher_revision was "v2" and is "v3"'):
        distill(chosen.model_copy(update=more))


@pytest.fixture
def eighths() -> Iterator[str]:
    """Register a quantization of transformers that rounds linear layers to eighths, and return its configuration."""
    from transformers.quantizers import auto
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    class Config(QuantizationConfigMixin):  # type: ignore[misc]  # of transformers, without types
        def __init__(self, **options: Any) -> None:
            self.quant_method = "eighths"

    class Quantizer(HfQuantizer):  # type: ignore[misc]  # of transformers, without types
        requires_calibration = False

        def _process_model_after_weight_loading(self, model: Any, **options: Any) -> Any:
            for layer in model.modules():
                if isinstance(layer, torch.nn.Linear):
                    layer.weight.data.mul_(8).round_().div_(8)
            return model

        @property
        def is_trainable(self) -> bool:
            return False

        def is_serializable(self, *args: Any, **options: Any) -> bool:
            return False

    auto.AUTO_QUANTIZATION_CONFIG_MAPPING["eighths"] = Config
    auto.AUTO_QUANTIZER_MAPPING["eighths"] = Quantizer
    yield '{"quant_method": "eighths"}'
    del auto.AUTO_QUANTIZATION_CONFIG_MAPPING["eighths"], auto.AUTO_QUANTIZER_MAPPING["eighths"]


def test_teacher_is_quantized_and_a_resumed_run_compares_it(place: Path, tmp_path: Path, eighths: str) -> None:
    chosen = settings(place, tmp_path / "out", quantization=eighths, max_steps=4)
    result = distill(chosen)
    both: Any = (result.teacher, result.student)
    weights = [model.model.model.layers[0].mlp.up_proj.weight for model in both]
    assert [torch.equal(8 * weight, (8 * weight).round()) for weight in weights] == [True, False]
    plain = distill(settings(place, tmp_path / "plain", max_steps=4))
    assert plain.train.initial_loss != result.train.initial_loss
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("out", "plain")]
    assert manifests[0]["settings"]["quantization"] == eighths
    assert manifests[0]["teacher_sha256"] != manifests[1]["teacher_sha256"]
    more = {"resume": Path("latest"), "force": True, "max_steps": 5}
    with pytest.raises(DriftError, match=r"quantization was .* and is null"):
        distill(chosen.model_copy(update={**more, "quantization": None}))
    assert distill(chosen.model_copy(update=more)).train.steps_completed == 5


@pytest.mark.parametrize(
    ("configuration", "kind", "says"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, PackageError, "requires bitsandbytes: `pip install"),
        ({"quant_method": "no_such"}, SettingError, "Unknown quantization type, got no_such"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": "yes"}, SettingError, "must be a boolean"),
    ],
)
def test_quantization_that_is_not_possible_is_refused(
    place: Path, tmp_path: Path, configuration: Any, kind: type[Exception], says: str
) -> None:
    if kind is PackageError and transformers.utils.is_bitsandbytes_available():
        pytest.skip("bitsandbytes is installed")
    with pytest.raises(kind, match=f"^quantization: .*{says}"):
        distill(settings(place, tmp_path / "out", quantization=json.dumps(configuration)))


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("adamw", '{"fused": true, "betas": [0.8, 0.95], "weight_decay": 0.1}'),
        ("adafactor", None),
        ("torch.optim:NAdam", '{"weight_decay": 0.1}'),
    ],
)
def test_run_with_any_optimizer_is_resumed_bit_for_bit(
    place: Path, tmp_path: Path, optimizer: str, options: str | None
) -> None:
    shape = {"optimizer": optimizer, "optimizer_options": options, "layer_decay": 0.5, "lr": 0.01, "epochs": 1}
    whole = settings(place, tmp_path / "whole", **shape, max_steps=6, save_every=0)
    distill(whole)
    part = settings(place, tmp_path / "part", **shape, max_steps=4)
    distill(part)
    distill(part.model_copy(update={"resume": Path("latest"), "force": True, "max_steps": 6}))
    assert digest(tmp_path / "whole") == digest(tmp_path / "part") != digest(place / "student")
    groups = json.loads((tmp_path / "part/manifest.json").read_text())["optimizer"]["groups"]
    undecayed = [name for group in groups if group["weight_decay"] == 0.0 for name in group["parameters"]]
    if options is not None:
        assert undecayed and all("norm" in name or "embed" in name for name in undecayed), undecayed
    scales = {name: group.get("lr_scale", 1.0) for group in groups for name in group["parameters"]}
    assert scales["student.model.model.embed_tokens.weight"] == 0.125
    assert scales["student.model.model.layers.1.mlp.up_proj.weight"] == 0.5


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (
            {"optimizer": "adafactor", "weights": "bfloat16", "dtype": "bfloat16"},
            "'weights' is bfloat16 and 'optimizer' is",
        ),
        ({"optimizer_options": '{"lr": 1}'}, "unknown option 'lr'; use --lr"),
        ({"optimizer_options": '{"no_such": 1}'}, "cannot create AdamW: .*no_such.*see --optimizer-options"),
        ({"optimizer": "no_such_module:Adam"}, "optimizer: cannot import no_such_module"),
        ({"optimizer": "torch.nn:Linear"}, "optimizer: "),
        (
            {"optimizer_options": '{"amsgrad": true}', "weights": "bfloat16", "dtype": "bfloat16"},
            "'amsgrad' has no effect on weights in bfloat16",
        ),
    ],
)
def test_optimizer_that_cannot_work_is_refused(place: Path, tmp_path: Path, chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        distill(settings(place, tmp_path / "out", **chosen))
    assert not (tmp_path / "out/manifest.json").exists()


def test_tokenizer_of_own_parts_is_that_of_the_student(place: Path, tmp_path: Path, own_parts: Any) -> None:
    run = own_parts.Even(settings(place, tmp_path / "out"))
    assert run.tokenizer.get_vocab() == load_tokenizer(place / "student").get_vocab()
