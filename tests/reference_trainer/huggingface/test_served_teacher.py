"""A student of transformers with a teacher behind a server; the contract `served-teacher` has its claims."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falsifiers.served_teacher.server import serving
from reference_trainer import Lines, SettingError, distill
from reference_trainer.errors import DriftError, ProviderError
from reference_trainer.pipeline.served_teacher import request_json
from tests.reference_trainer.huggingface.small_models import digest, settings

pytest.importorskip("transformers")


def table(place: Path) -> Any:
    size = json.loads((place / "student/config.json").read_text())["vocab_size"]
    return np.random.default_rng(0).normal(size=(size, size))


def test_resumed_run_compares_what_the_server_says(place: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"teacher": None, "teacher_top_k": 5, "on_policy": 0.5, "answer_tokens": 4}
    output = io.StringIO()
    with serving(table(place)) as server:
        options["teacher_url"] = server.url
        whole = distill(settings(place, tmp_path / "whole", max_steps=4, log_every=1, **options), lines=Lines(output))
        distill(settings(place, tmp_path / "out", max_steps=2, save_every=2, **options))
        resumed = settings(place, tmp_path / "out", max_steps=4, resume=Path("latest"), force=True, **options)
        distill(resumed)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole") != digest(place / "student")
    assert "soft_loss" in whole.train.metrics and "tokenizer of --teacher-url is not compared" in output.getvalue()
    manifest = json.loads((tmp_path / "whole/manifest.json").read_text())
    assert json.loads(manifest["served_teacher"])["root"] == "tables/one" and manifest["evaluation"]["top_k"] == 5
    with serving(table(place), root="tables/two") as other:
        changed = resumed.model_copy(update={"teacher_url": other.url, "max_steps": 6})
        with pytest.raises(DriftError, match=r"served_teacher was .*tables/one.* and is .*tables/two"):
            distill(changed)


def test_invalid_port_is_refused_without_another_attempt() -> None:
    pauses: list[float] = []
    with pytest.raises(ProviderError, match="failed: nonnumeric port: 'abc'"):
        request_json("http://localhost:abc/v1/models", None, timeout_s=1, pause=pauses.append)
    assert pauses == []


@pytest.mark.parametrize(
    "option", [{"temperature": 2.0}, {"feature_weight": 1.0}, {"share_vocabulary": "pad"}], ids=str
)
def test_settings_that_a_server_cannot_serve_are_refused(place: Path, tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="'teacher_url' needs"):
        distill(settings(place, tmp_path / "out", teacher=None, teacher_url="http://127.0.0.1:9", **option))
