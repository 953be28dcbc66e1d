"""Attacks on a distillation of models of transformers: predicates over `reference_run.py::distil`.

The oracle uses transformers alone: each conversation is a row of its own, and which tokens an assistant writes follows
from the words.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from falsifiers.hugging_face_run.reference_run import (
    CONVERSATIONS,
    EVALUATED,
    HELD_BACK,
    TEMPLATE,
    conversations,
    probe,
)
from pv.suites.training_run.claims import judge
from pv.suites.training_run.run import read_folder


def falsify_held_back_conversations_are_not_trained_on(run: Any) -> None:
    wanted = [n for n in range(CONVERSATIONS) if n not in HELD_BACK]
    seen = run.result["trained_on"]
    assert seen == wanted, (
        f"the student is trained on {sorted({*seen} - {*wanted})} too, and not on {sorted({*wanted} - {*seen})}"
    )
    seen = run.result["evaluated_on"]
    assert seen == list(EVALUATED), f"the student is evaluated on the conversations {seen}; expected {EVALUATED}"


def falsify_teacher_keeps_its_data_type(run: Any) -> None:
    saved = sorted({str(each.dtype) for each in load_file(run.directory / "teacher/model.safetensors").values()})
    assert run.result["teacher"] == saved, f"the teacher has {run.result['teacher']}; its files have {saved}"


def falsify_first_loss_is_that_of_each_conversation_alone(run: Any) -> None:
    """An adapter begins as nothing, so the student of the first step is its base."""
    lines = [json.loads(line) for line in (run.directory / "out/metrics.jsonl").read_text().splitlines()]
    seen = next(line["metrics"] for line in lines if line["step"] == 1 and "hard_loss" in line["metrics"])
    sums = _oracle(run.directory / "student", run, run.result["first_pass"])
    _compare(seen, {name: total / sums["count"] for name, total in sums.items()}, "the first loss")


def falsify_reported_numbers_are_those_of_the_export(run: Any) -> None:
    reported = json.loads((run.directory / "out/manifest.json").read_text())["held_back"]
    sums = _oracle(run.directory / "out", run, EVALUATED)
    counts = {each["count"] for each in reported.values()}
    assert counts == {sums["count"]}, f"the manifest counts {counts} tokens; the assistant writes {sums['count']}"
    _compare({name: each["sum"] for name, each in reported.items()}, sums, "the held-back sum")


def _compare(seen: dict[str, float], wanted: dict[str, float], what: str) -> None:
    # Float32 arithmetic of about 50 tokens; a teacher in bfloat16 rounds its logits, in other rows otherwise.
    for name, tolerance in (("hard_loss", 1e-5), ("kl_at_1", 0.03)):
        found = f"{what} {name} is {seen[name]:.6f}; conversation by conversation it is {wanted[name]:.6f}"
        assert math.isclose(seen[name], wanted[name], rel_tol=tolerance), found


def falsify_export_is_the_trained_model(run: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(run.directory / "out")
    assert words.chat_template == TEMPLATE, f"the exported template is {words.chat_template!r}"
    adapter = sorted(each.name for each in (run.directory / "out").glob("adapter*"))
    assert adapter == [], f"the merged model has {adapter} beside it"
    trained = torch.tensor(run.result["trained_logits"])
    exported, base = (
        AutoModelForCausalLM.from_pretrained(run.directory / name)(probe(words)).logits.detach()
        for name in ("out", "student")
    )
    size, off, moved = (float(each.abs().max()) for each in (trained, exported - trained, base - trained))
    assert off <= 1e-4 * size, (
        f"exported logits are off by {off:.3g} of {size:.3g}; the training moved them by {moved:.3g}"
    )
    assert moved > 1e-2 * size, f"the training moved logits of {size:.3g} by {moved:.3g}; the comparison says nothing"


def falsify_export_with_other_logits_is_refused(run: Any) -> None:
    said, left = run.result["changed_export"], sorted(each.name for each in (run.directory / "changed").iterdir())
    assert "other logits" in said and left == [], f"an export of halved weights ends with {said!r}, and leaves {left}"


@torch.no_grad()
def _oracle(student: Path, run: Any, numbers: Any) -> dict[str, float]:
    """Return sums over the assistant's tokens: cross-entropy of the student, and KL(teacher || student)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(run.directory / "student")
    models = [AutoModelForCausalLM.from_pretrained(each, dtype="auto") for each in (student, run.directory / "teacher")]
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
    observed = read_folder(run.directory / "observed", complete=True)
    records = judge(observed)
    assert {name: record.explanation for name, record in records.items() if record.proofs} == {}
    tried = {name for name, record in records.items() if record.tried}
    assert {"TR-GRAD-001", "TR-MODE-001", "TR-MODE-002", "TR-PARAM-001"} <= tried, sorted(tried)
    evaluations = [forward for process in observed.processes for forward, _ in process.evaluations]
    assert [forward["at"] for forward in evaluations if forward["training_layers"]] == []
