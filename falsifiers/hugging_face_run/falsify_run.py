"""Attacks on a distillation of a Hugging Face model, and the run that all of them read."""

import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors.torch import load_file

import reference_trainer
from falsifiers.support.assertions import assert_equal
from falsifiers.support.causal import (
    CONVERSATIONS,
    FIRST_NUMBER,
    TEMPLATE,
    WORDS,
    conversations,
    word_tokenizer,
    write_chats,
)
from falsifiers.support.recorded import assert_claims_about_every_run
from falsifiers.support.run_lines import COMPILED_STEP, NEXT_STEP, matcher
from pv import observe
from reference_trainer.huggingface.models import Causal, load_tokenizer, save_model
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.pipeline.saved_models import evaluate_saved, report, settings_of_run

HELD_BACK, EVALUATED = range(36, 40), (36, 38)
"""The conversations that are held back, and the two of these that are evaluated."""
ADAPTER = {"target_modules": ["q_proj", "v_proj", "lm_head"], "lora_dropout": 0.1}
SETTINGS = {"lora": 4, "lora_options": json.dumps(ADAPTER), "lora_merge": True, "documents": "pack"}
SETTINGS |= {"ce_weight": 0.5, "kd_weight": 0.5, "lr": 0.03, "warmup": 0, "batch_size": 2}
SETTINGS |= {"eval_rows": len(EVALUATED), "eval_every": 4, "log_every": 1, "save_every": 1000, "hang_after": 0.0}
SETTINGS |= {"compile": True}


def distil(
    subject: Any, *, device: str, directory: Path, trace: Callable[[dict[str, Any]], None], seed: int, epochs: int
) -> dict[str, Any]:
    """Distil once, and return what was trained on, evaluated and loaded, and how a changed export ends."""
    del trace
    paths = write_chats(directory, seed)
    words = load_tokenizer(paths["student"])
    words.chat_template = TEMPLATE.replace(" <end>", " w0 <end>")  # the template of the settings replaces it
    words.save_pretrained(paths["student"])
    paths["chat_template"] = directory / "template.jinja"
    paths["chat_template"].write_text(TEMPLATE)
    settings = reference_trainer.Settings(**paths, **SETTINGS, device=device, seed=seed, epochs=epochs)
    offline = mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"})
    stream = io.StringIO()
    lines, uncompiled = reference_trainer.Lines(stream), mock.patch.object(subject, "compile_layers")
    recorded = observe(directory / "observed")
    with offline, uncompiled, recorded, subject.HuggingFace(settings, lines=lines) as run:
        run.prepare()
        passes: list[tuple[bool, list[int]]] = []
        run.student.model.register_forward_pre_hook(
            lambda module, args, named: passes.append((module.training, named["input_ids"].flatten().tolist())),
            with_kwargs=True,
        )
        trained = run.run()
        facts: dict[str, Any] = {
            "teacher": sorted({str(parameter.dtype) for parameter in run.teacher.parameters()}),
            "trained_logits": _logits(run.student, probe(word_tokenizer())),
            "first_pass": _numbers(next(tokens for training, tokens in passes if training)),
        }
        for name, flag in (("trained_on", True), ("evaluated_on", False)):
            numbers = (number for training, tokens in passes if training is flag for number in _numbers(tokens))
            facts[name] = sorted(set(numbers))
        result = run.conclude(trained)
        export_checkpoint(settings.run.out, "latest", directory / "exported")
        facts["evaluation"] = _evaluated(directory, settings)
        facts["changed_export"] = _changed_export(result.student, word_tokenizer(), directory / "changed")
    return facts | {"lines": stream.getvalue()}


def _evaluated(directory: Path, settings: Any) -> dict[str, Any]:
    """Return the report of the command `evaluate` for the exported model."""
    options = {"device": settings.run.device, "teacher": settings.teacher.model}
    chosen = settings_of_run([directory / "out"], options)
    return report(evaluate_saved([directory / "out"], chosen, whole=False))


def probe(words: Any) -> torch.Tensor:
    """Return tokens [1, T] to compare models by."""
    return torch.tensor([words(" ".join(WORDS[:10]))["input_ids"]])


@torch.no_grad()
def _logits(student: Any, tokens: torch.Tensor) -> Any:
    modes = [(module, module.training) for module in student.modules()]
    logits = student.eval()(tokens.to(next(student.parameters()).device)).logits.tolist()
    for module, training in modes:
        module.training = training
    return logits


def _numbers(tokens: list[int]) -> list[int]:
    """Return the numbers of the conversations among these tokens."""
    return [token - FIRST_NUMBER for token in tokens if token >= FIRST_NUMBER]


def _changed_export(student: Any, words: Any, directory: Path) -> str:
    """Return the error of an export whose weights differ from the student's weights; empty if it is accepted."""

    def halved(model: Causal) -> Causal:
        with torch.no_grad():
            next(model.parameters()).mul_(0.5)
        return model

    directory.mkdir()
    try:
        save_model(student, words, directory, {}, merge=halved)
    except reference_trainer.OutputError as error:
        return str(error)
    return ""


def falsify_held_back_conversations_are_not_trained_on(run: Any) -> None:
    wanted = [n for n in range(CONVERSATIONS) if n not in HELD_BACK]
    seen = run.result["trained_on"]
    excess, missing = sorted({*seen} - {*wanted}), sorted({*wanted} - {*seen})
    assert seen == wanted, f"the student is trained on {excess} too, and not on {missing}"
    seen = run.result["evaluated_on"]
    assert seen == list(EVALUATED), f"the student is evaluated on the conversations {seen}; expected {EVALUATED}"


def falsify_estimate_leaves_out_the_compilation(run: Any) -> None:
    written = run.result["lines"].splitlines()
    about = [line for line in written if matcher(COMPILED_STEP).fullmatch(line) or matcher(NEXT_STEP).fullmatch(line)]
    steps = [bool(matcher(COMPILED_STEP).fullmatch(line)) for line in about]
    assert steps == [True, False], f"the lines about the first steps of a compiled run are {about}, of {written[:20]}"


def falsify_teacher_keeps_its_data_type(run: Any) -> None:
    saved = sorted({str(value.dtype) for value in load_file(run.directory / "teacher/model.safetensors").values()})
    assert run.result["teacher"] == saved, f"the teacher has {run.result['teacher']}; its files have {saved}"


def falsify_first_loss_is_that_of_each_conversation_alone(run: Any) -> None:
    """An adapter begins as nothing, so the student of the first step is its base."""
    lines = [json.loads(line) for line in (run.directory / "out/metrics.jsonl").read_text().splitlines()]
    seen = next(line["metrics"] for line in lines if line["step"] == 1 and "hard_loss" in line["metrics"])
    sums = _oracle(run.directory / "student", run, run.result["first_pass"])
    _compare(seen, {name: total / sums["count"] for name, total in sums.items()}, "the first loss")


def falsify_reported_numbers_are_those_of_the_export(run: Any) -> None:
    """By transformers without the trainer, and by `evaluate` from the files."""
    manifest = json.loads((run.directory / "out/manifest.json").read_text())
    reported, again = manifest["held_back"], run.result["evaluation"]
    assert_equal("the identity of the evaluation of the files", again["evaluation"], manifest["evaluation"])
    (evaluated,) = again["models"]
    for name, total in evaluated["sums"].items():
        expected = reported[name]
        assert total["count"] == expected["count"], f"{name} of the files counts {total}; the run {expected}"
        assert math.isclose(total["sum"], expected["sum"], rel_tol=1e-5), f"{name} of the files is {total}; {expected}"
    sums = _oracle(run.directory / "out", run, EVALUATED)
    counts = {value["count"] for value in reported.values()}
    assert counts == {sums["count"]}, f"the manifest counts {counts} tokens; the assistant writes {sums['count']}"
    _compare({name: value["sum"] for name, value in reported.items()}, sums, "the held-back sum")


def _compare(seen: dict[str, float], wanted: dict[str, float], label: str) -> None:
    # Float32 arithmetic of about 50 tokens; a teacher in bfloat16 rounds its logits, in other rows otherwise.
    for name, tolerance in (("hard_loss", 1e-5), ("kl_at_1", 0.03)):
        case = f"{label} {name} is {seen[name]:.6f}; conversation by conversation it is {wanted[name]:.6f}"
        assert math.isclose(seen[name], wanted[name], rel_tol=tolerance), case


def falsify_export_is_the_trained_model(run: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trained = torch.tensor(run.result["trained_logits"])
    for name in ("out", "exported"):
        words = AutoTokenizer.from_pretrained(run.directory / name)
        assert words.chat_template == TEMPLATE, f"the template in {name} is {words.chat_template!r}"
        adapter = sorted(path.name for path in (run.directory / name).glob("adapter*"))
        assert adapter == [], f"the merged model in {name} has {adapter} beside it"
        written, base = (
            AutoModelForCausalLM.from_pretrained(run.directory / of).eval()(probe(words)).logits.detach()
            for of in (name, "student")
        )
        size, off, moved = (float(x.abs().max()) for x in (trained, written - trained, base - trained))
        case = f"logits of {name} are off by {off:.3g} of {size:.3g}; the training moved them by {moved:.3g}"
        assert off <= 1e-4 * size, case
        assert moved > 1e-2 * size, f"the training moved logits of {size:.3g} by {moved:.3g}; nothing was compared"


def falsify_export_with_other_logits_is_refused(run: Any) -> None:
    text, left = run.result["changed_export"], sorted(path.name for path in (run.directory / "changed").iterdir())
    assert "other logits" in text and left == [], f"an export of halved weights ends with {text!r}, and leaves {left}"


@torch.no_grad()
def _oracle(student: Path, run: Any, numbers: Any) -> dict[str, float]:
    """Return sums over the assistant's tokens: cross-entropy of the student, and KL(teacher || student)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(run.directory / "student")
    models = [AutoModelForCausalLM.from_pretrained(path, dtype="auto") for path in (student, run.directory / "teacher")]
    sums = {"hard_loss": 0.0, "kl_at_1": 0.0, "count": 0.0}
    for number in numbers:
        tokens, answered = _tokens(words, conversations(run.arguments["seed"])[number]["messages"])
        scored = torch.tensor(answered[1:])
        log_q, log_p = (
            model(torch.tensor([tokens])).logits[0, :-1][scored].double().log_softmax(-1) for model in models
        )
        labels = torch.tensor(tokens[1:])[scored]
        sums["hard_loss"] -= float(log_q.gather(1, labels[:, None]).sum())
        sums["kl_at_1"] += float((log_p.exp() * (log_p - log_q)).sum())
        sums["count"] += len(labels)
    return sums


def _tokens(words: Any, messages: list[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """Return the tokens of a conversation, each with whether the assistant writes it."""
    tokens: list[int] = []
    answered: list[bool] = []
    for message in messages:
        head, body = (words(text)["input_ids"] for text in (f"<{message['role']}>", f"{message['content']} <end>"))
        tokens += [*head, *body]
        answered += [False] * len(head) + [message["role"] == "assistant"] * len(body)
    return tokens, answered


def falsify_claims_about_every_run_hold(run: Any) -> None:
    needed = {"TR-GRAD-001", "TR-MODE-001", "TR-MODE-002", "TR-PARAM-001"}
    observed = assert_claims_about_every_run(run.directory / "observed", needed)
    evaluations = [forward for process in observed.processes for forward, _ in process.evaluations]
    assert evaluations, "no forward without gradients is observed, so nothing was tried"
    assert [forward["at"] for forward in evaluations if forward["training_layers"]] == []
