"""Parts of a distillation that are refused before a step is taken."""

from pathlib import Path
from typing import Any

import pytest
import torch

from reference_trainer import Distillation, SettingError, Settings, distill
from reference_trainer.distillation.protocols import Batch
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.export import save_decoder

SMALL: dict[str, Any] = {
    **dict.fromkeys(("layers", "teacher_layers", "teacher_steps"), 1),
    **dict.fromkeys(("width", "teacher_width", "length"), 16),
    "batch_size": 2,
    "device": "cpu",
}


class OwnBatches(Distillation):
    def make_batches(self) -> Any:
        tokens = torch.ones(2, 4, dtype=torch.int64)
        return type("Ones", (), {"batches": 1, "batch": lambda self, epoch, k: Batch(tokens=tokens, labels=tokens)})()


class OwnStudent(Distillation):
    def make_student(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256))


class OwnBatchesAndTeacher(OwnBatches):
    def make_teacher(self) -> torch.nn.Module:
        return self.make_student()


@pytest.mark.parametrize(
    ("kind", "part", "given"),
    [
        (OwnBatches, "make_teacher", {}),
        (OwnBatches, "make_teacher", {"smoke": 1}),
        (OwnBatchesAndTeacher, "evaluate", {}),
        (OwnBatchesAndTeacher, "evaluate", {"smoke": 2, "eval_every": 1}),
        (OwnStudent, "save", {}),
    ],
)
def test_part_that_the_default_would_need_is_asked_for_before_the_run(
    kind: type[Distillation], part: str, given: dict[str, Any], tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 123)) * 40)
    settings = Settings(data=text, out=tmp_path / "out", teacher_cache=tmp_path / "cache", **SMALL, **given)
    with pytest.raises(SettingError, match=f"{kind.__name__} .*override {part} too"), kind(settings) as run:
        run.prepare()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", [OwnBatchesAndTeacher, OwnStudent])
def test_smoke_run_needs_no_part_that_it_does_not_use(kind: type[Distillation], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 123)) * 40)
    settings = Settings(data=text, out=tmp_path / "out", teacher_cache=tmp_path / "cache", smoke=1, **SMALL)
    with kind(settings) as run:
        run.prepare()
        assert run.run().steps_completed == 1


def test_settings_without_effect_are_written_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 123)) * 40)
    distill(Settings(data=text, out=tmp_path / "out", teacher_cache=tmp_path / "cache", smoke=1, beta=0.2, **SMALL))
    assert capsys.readouterr().out.startswith("settings: beta has no effect without divergence jensen_shannon\n")


@pytest.mark.parametrize("training", [True, False])
def test_student_in_eval_mode_is_named_before_the_run(
    training: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pretrained(OwnStudent):
        def make_student(self) -> torch.nn.Module:
            return super().make_student().train(training)

    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 123)) * 40)
    settings = Settings(data=text, out=tmp_path / "out", teacher_cache=tmp_path / "cache", smoke=1, **SMALL)
    with Pretrained(settings) as run:
        run.prepare()
    assert ("student: trains in eval mode" in capsys.readouterr().out) is not training


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_own_student_of_another_dtype_than_the_settings_is_named_before_the_run(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Single(OwnStudent):
        def make_student(self) -> torch.nn.Module:
            return super().make_student().float()

    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 123)) * 40)
    given: dict[str, Any] = {"data": text, "out": tmp_path / "out", "teacher_cache": tmp_path / "cache", "smoke": 1}
    with Single(Settings(dtype=dtype, **given, **SMALL)) as run:
        run.prepare()
    said = "student: has parameters of torch.float32; return model.double()" in capsys.readouterr().out
    assert said is (dtype == "float64")


@pytest.mark.parametrize("largest", [99, 100])
def test_text_with_bytes_that_the_teacher_has_no_token_for_is_refused(tmp_path: Path, largest: int) -> None:
    (tmp_path / "teacher").mkdir()
    save_decoder(new_decoder(DecoderConfig(vocab_size=100, layers=1, width=16, heads=1), 0), tmp_path / "teacher", {})
    text = tmp_path / "text"
    text.write_bytes(bytes(range(50, largest + 1)) * 40)
    given = {"data": text, "teacher": tmp_path / "teacher", "share_vocabulary": "pad", "max_steps": 1}
    settings = Settings(out=tmp_path / "out", **given, **SMALL)
    if largest < 100:
        assert distill(settings).train.steps_completed == 1
        return
    with pytest.raises(SettingError, match="byte 100, and the teacher has 100 tokens"):
        distill(settings)
