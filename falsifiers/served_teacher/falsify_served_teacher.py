"""Attacks on teachers behind a server."""

import math
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.served_teacher.server import CUT, STALLED, serving
from falsifiers.support.oracles import assert_refused
from reference_trainer import Settings
from reference_trainer.distillation.protocols import Batch
from reference_trainer.errors import ProviderError

V, IGNORED = 7, -100


def falsify_top_tokens_are_those_of_the_model(subject: Any) -> None:
    """Whole logits, so that many tokens have the same: of these, the first ones come first."""
    table = np.random.default_rng(0).normal(scale=2.0, size=(V, V)).round()

    @given(st.integers(0, 10**6), st.integers(1, V), st.booleans(), st.sampled_from(["", "/", "/v1", "/v1/"]))
    def check(seed: int, k: int, packed: bool, ending: str) -> None:
        batch, places, documents = drawn_batch(random.Random(seed), packed=packed)
        server.prompts.clear()
        top_k = subject.ServedTeacher(server.url + ending, top_k=k, vocab_size=V).top_k(batch)
        assert top_k.temperature == 1.0 and list(top_k.logits.shape) == [*batch.tokens.shape, k]
        for b, t in places:
            logits = table[int(batch.tokens[b, t])]
            order = np.argsort(-logits, kind="stable")
            wanted = logits[order[:k]] - logits[order[0]]
            others = np.exp(logits[order[k:]] - logits[order[0]]).sum()
            rest = float(top_k.rest[b, t])
            assert top_k.tokens[b, t].tolist() == order[:k].tolist(), f"position {b, t}: {top_k.tokens[b, t]}"
            assert np.abs(top_k.logits[b, t].numpy() - wanted).max() < 1e-5, f"{top_k.logits[b, t]}; expected {wanted}"
            # The tail is a difference from 1: its absolute error is rounding of float64.
            assert math.isclose(math.exp(rest), others, rel_tol=1e-5, abs_tol=1e-12), f"rest {rest}; expected {others}"
        for prompt in server.prompts:
            is_document = any(document[: len(prompt)] == prompt for document in documents)
            assert is_document, f"{prompt} is asked for; the documents are {documents}"
        assert places, "nothing is scored; the claim was not tried"

    with serving(table) as server:
        check()


def drawn_batch(draw: random.Random, *, packed: bool) -> tuple[Batch, list[tuple[int, int]], Any]:
    """Return documents as rows, the places of scored logits (row and position), and the documents."""
    count = draw.choice([4, 12])  # in a batch of more than 10, indices have one digit or two
    documents = [[draw.randint(1, V - 1) for _ in range(draw.randint(2, 5))] for _ in range(count)]
    rows = [documents[: count // 2], documents[count // 2 :]] if packed else [[document] for document in documents]
    width = max(sum(map(len, row)) for row in rows)
    tokens_BT, segments_BT = (torch.zeros(len(rows), width, dtype=torch.int64) for _ in range(2))
    labels_BT, places = torch.full_like(tokens_BT, IGNORED), []
    for b, row in enumerate(rows):
        at = 0
        for number, document in enumerate(row, 1):
            end = at + len(document)
            tokens_BT[b, at:end], segments_BT[b, at:end] = torch.tensor(document), number
            scored = [t for t in range(at + 1, end) if draw.random() < 0.7 or (b, number) == (0, 1)]
            labels_BT[b, scored] = tokens_BT[b, scored]
            places += [(b, t - 1) for t in scored]
            at = end
    return Batch(tokens=tokens_BT, labels=labels_BT, segments=segments_BT if packed else None), places, documents


def falsify_passing_failures_are_retried_and_others_reported(subject: Any) -> None:
    batch, _, _ = drawn_batch(random.Random(1), packed=False)
    pauses: list[float] = []
    with serving(np.eye(V)) as server:
        teacher = subject.ServedTeacher(server.url, top_k=2, vocab_size=V, pause=pauses.append)
        undisturbed = teacher.top_k(batch)
        for passing in ([503, CUT, 408, 425], [429, 500, 502, 504]):
            server.statuses = [*passing]
            retried = teacher.top_k(batch)
            assert torch.equal(retried.logits, undisturbed.logits), f"after the statuses {passing}, other logits"
            assert pauses == [1.0, 2.0, 4.0, 8.0], f"between the statuses {passing}, pauses are {pauses}"
            pauses.clear()
        server.statuses = [STALLED]
        hasty = subject.ServedTeacher(server.url, top_k=2, vocab_size=V, timeout_s=1.0, pause=lambda seconds: None)
        retried = hasty.top_k(batch)
        assert torch.equal(retried.logits, undisturbed.logits), "after a 503 without its message, other logits"
        for status, requests in ((503, 7), *((status, 1) for status in (400, 401, 403, 404, 422, 501))):
            server.statuses, server.requests = [status] * 100, 0
            message = refused(teacher, batch)
            assert f"HTTP {status}" in message and "not now" in message, message
            assert server.requests == requests, f"HTTP {status} is tried {server.requests} times; expected {requests}"
        server.statuses, server.key = [], "secret"
        message = refused(teacher, batch)
        assert "no key" in message, f"the error without a key is {message!r}; expected the message of the server"
        with mock.patch.dict(os.environ, {"VLLM_API_KEY": "secret"}):
            assert torch.equal(teacher.top_k(batch).logits, undisturbed.logits)
    pauses.clear()
    message = refused(teacher, batch)
    case = f"without a server, the pauses are {pauses} s and the error is {message!r}"
    assert "failed after" in message and pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], case


def refused(teacher: Any, batch: Batch) -> str:
    """Return the message of the `ProviderError`."""
    try:
        teacher.top_k(batch)
    except ProviderError as error:
        return str(error)
    raise AssertionError("the answer is accepted")


def _changed(whole: Callable[[Any], Any], change: Callable[[Any], Any], content: Any) -> Any:
    """Return a changed answer of a server."""
    return change(whole(content))


EXCLUDED: list[tuple[str, Any, str]] = [
    ("temperature", 2.0, "temperature 1"),
    ("temperature_end", 2.0, "temperature 1"),
    ("feature_weight", 1.0, "no hidden states"),
    ("feature_weight_end", 1.0, "no hidden states"),
    ("share_vocabulary", "pad", "no share_vocabulary"),
    ("teacher_outputs", Path("outputs"), "no teacher_outputs"),
]
"""Settings that exclude a served teacher, and what the refusal says."""


def falsify_answers_that_do_not_fit_are_refused(subject: Any) -> None:
    batch, _, _ = drawn_batch(random.Random(1), packed=False)
    with serving(np.eye(V)) as server:
        small = subject.ServedTeacher(server.url, top_k=V, vocab_size=V - 1)
        assert "the student has 6 tokens" in refused(small, batch)
        many = subject.ServedTeacher(server.url, top_k=V + 1, vocab_size=V)
        assert "7 finite log-probabilities of 8" in refused(many, batch)
        teacher = subject.ServedTeacher(server.url, top_k=2, vocab_size=V)
        whole = server.answer
        changes: dict[str, Any] = {
            "without prompt_logprobs": lambda answer: {"choices": [{"index": 0}]},
            "for prompts of": lambda answer: {"choices": answer["choices"][1:]},
            "[1, 2]": lambda answer: {
                "choices": [
                    one | {"prompt_logprobs": [[1, 2]] * len(one["prompt_logprobs"])} for one in answer["choices"]
                ]
            },
        }
        for part, change in changes.items():
            with mock.patch.object(server, "answer", partial(_changed, whole, change)):
                assert part in (message := refused(teacher, batch)), message
        new = partial(subject.ServedTeacher, server.url, vocab_size=V)
        assert_refused("another model", partial(new, model="other"), "no model 'other'", "table", kind=ProviderError)
        server.models = [*server.models, {"id": "second"}]
        assert_refused("no name for one of two models", new, "several models", "table, second", kind=ProviderError)
        assert new(model="second").identity["id"] == "second"
    for setting, value, words in EXCLUDED:
        settings = Settings(**{"teacher_url": "http://127.0.0.1:9", "temperature": 1.0, setting: value})
        assert_refused(f"{setting} {value}", partial(subject.served_teacher, settings, V), "'teacher_url' needs", words)


def falsify_digest_is_that_of_what_the_server_says(subject: Any) -> None:
    digests = []
    for identity in ({}, {}, {"root": "tables/two"}, {"id": "other"}, {"max_model_len": 32}, {"created": 5}):
        with serving(np.eye(V), **identity) as server:
            digests.append(subject.ServedTeacher(server.url, vocab_size=V).digest())
    assert digests[0] == digests[1] == digests[5], "the same model has other digests, on another port or later"
    assert len(set(digests[1:5])) == 4, f"different models have equal digests: {digests}"
