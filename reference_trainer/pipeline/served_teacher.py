"""A teacher behind a server that returns the most probable tokens of each position, by vLLM's completions protocol.

The protocol is OpenAI's `POST /v1/completions` with vLLM's option `prompt_logprobs`. A request has prompts as lists of
token numbers. The answer has one entry for each token of a prompt. An entry maps token numbers to their `logprob`, for
the K most probable tokens at the position of the prompt's token and for the prompt's token; the first entry is null.
`GET /v1/models` lists the models. Sources: https://docs.vllm.ai/en/latest/serving/openai_compatible_server/ and
`vllm.SamplingParams.prompt_logprobs`.

All tokens other than the K most probable are one outcome, the tail; see `distillation.protocols.TopK`. Shape letters: B
batch, T position, N positions of a document, K kept tokens.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import document_positions
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch, TopK
from reference_trainer.distillation.step import labels_of_logits
from reference_trainer.errors import ProviderError, SettingError, first_line

API_KEY_VARIABLE = "VLLM_API_KEY"
"""The environment variable that contains the API key; `vllm serve` reads the same variable."""
ATTEMPTS, FIRST_PAUSE_S = 7, 1.0
"""Number of attempts of a request, and the pause after the first attempt in seconds. Pauses double: 63 s in total."""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which a request is sent again."""


def served_teacher(settings: Settings, vocab_size: int) -> ServedTeacher:
    """Return the teacher of the setting `teacher_url`.

    Args:
        settings: The settings of the run.
        vocab_size: The vocabulary size of the student.

    Raises:
        SettingError: If another setting excludes a served teacher.
        ProviderError: As in `ServedTeacher`.
    """
    assert settings.teacher.url is not None
    # A server returns the probabilities of K tokens at temperature 1, but no logits and no hidden states.
    needs: dict[str, bool] = {
        "temperature 1, because a server returns probabilities at 1": settings.objective.temperature == 1
        and settings.objective.temperature_end in (None, 1),
        "no hidden states: feature_weight 0": not (
            settings.objective.feature_weight or settings.objective.feature_weight_end
        ),
        "no share_vocabulary": settings.teacher.share_vocabulary is None,
        "no teacher_outputs": settings.teacher.outputs is None,
    }
    for need, is_met in needs.items():
        if not is_met:
            raise SettingError(f"conflicting settings: 'teacher_url' needs {need}")
    model, top_k = settings.teacher.served_model, settings.teacher.top_k
    return ServedTeacher(settings.teacher.url, model=model, top_k=top_k, vocab_size=vocab_size)


class ServedTeacher:
    """A `TopKTeacher` whose model runs in a server.

    A batch is one request. A prompt is a document of the batch, up to the token after its last scored position;
    documents without a scored position are left out, and a batch without one sends no request.

    Args:
        url: The URL of the server, such as http://localhost:8000, with or without a final /v1.
        model: The name of the model; None if the server has only one.
        top_k: K. vLLM allows at most its `--max-logprobs`, by default 20.
        vocab_size: V, the vocabulary size of the student.
        timeout_s: The limit of a request, in seconds.
        pause: Called with the seconds to wait before a request is sent again.

    Raises:
        ProviderError: If the server cannot be reached, refuses a request or answers in another form, or if a returned
            token is outside the vocabulary of the student. Both the constructor and `top_k` raise this error.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        top_k: int = 20,
        vocab_size: int,
        timeout_s: float = 600.0,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._top_k, self._timeout_s, self._pause = top_k, timeout_s, pause
        self.vocab_size = vocab_size
        self.identity: Mapping[str, object] = self._describe(model)

    def digest(self) -> str:
        """Return the SHA-256 of the model's name, root and `max_model_len` as the server lists them."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()

    def top_k(self, batch: Batch) -> TopK:
        """Return the K most probable tokens at the scored positions of a batch, on the CPU, at temperature 1."""
        tokens_BT, scored_BT = batch.tokens.cpu(), labels_of_logits(batch.labels.cpu()) != IGNORE_INDEX
        # The distribution at position i is the entry for token i + 1. A prompt therefore contains a document up to the
        # token after the last scored position, which is the token that this position predicts.
        prompts: list[tuple[int, Tensor]] = []
        for b, positions_N in document_positions(batch):
            scored = scored_BT[b, positions_N].nonzero().flatten().tolist()
            if scored:
                prompts.append((b, positions_N[: scored[-1] + 2]))
        shape = (*tokens_BT.shape, self._top_k)
        logits_BTK = torch.zeros(shape)
        chosen_BTK = torch.zeros(shape, dtype=torch.int32)
        rest_BT = torch.zeros(tokens_BT.shape)
        tokens = [tokens_BT[b, positions_N].tolist() for b, positions_N in prompts]
        answers = self._prompt_logprobs(tokens) if prompts else []
        for (b, positions_N), answer in zip(prompts, answers, strict=True):
            for position, entries in zip(positions_N[:-1].tolist(), answer[1:], strict=True):
                if scored_BT[b, position]:
                    # Subtract the largest log-probability from all; a constant does not change the softmax.
                    chosen, logprobs = self._most_probable(entries)
                    chosen_BTK[b, position] = torch.tensor(chosen, dtype=torch.int32)
                    logits_BTK[b, position] = torch.tensor([logprob - logprobs[0] for logprob in logprobs])
                    tail = 1.0 - math.fsum(map(math.exp, logprobs))
                    rest_BT[b, position] = math.log(tail) - logprobs[0] if tail > 0 else -math.inf
        return TopK(logits_BTK, chosen_BTK, rest_BT, 1.0)

    def _most_probable(self, entries: object) -> tuple[list[int], list[float]]:
        """Return the K most probable tokens of a position in decreasing order, and their log-probabilities."""
        try:
            # Log-probabilities are negated, so that the largest one is the first after sorting. Entries of another type
            # raise here.
            pairs = [(-float(entry["logprob"]), int(token)) for token, entry in entries.items()]  # type: ignore[attr-defined]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._unexpected(f"the prompt_logprobs {str(entries)[:80]}") from error
        # The server adds the prompt's token to the K most probable tokens, so a position may have K + 1. Sort them by
        # decreasing log-probability, then by token number, as `keep_top_k` does.
        pairs = sorted(pairs)[: self._top_k]
        if (finite := sum(math.isfinite(negative) for negative, _ in pairs)) < self._top_k:
            raise self._unexpected(f"a position that has {finite} finite log-probabilities of {self._top_k}")
        if (token := max(token for _, token in pairs)) >= self.vocab_size:
            raise ProviderError(
                f"{self._url}: the teacher gives token {token} a probability, and the student has {self.vocab_size} "
                "tokens; expected a teacher with the student's tokenizer"
            )
        return [token for _, token in pairs], [-negative for negative, _ in pairs]

    def _prompt_logprobs(self, prompts: list[list[int]]) -> list[list[object]]:
        """Return for each prompt the entries of its tokens, in the order of the prompts."""
        options = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": self._top_k}
        answer = self._request("/v1/completions", {"model": self.identity["id"], "prompt": prompts, **options})
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            entries: list[list[object]] = [choice["prompt_logprobs"] for choice in choices]
            sizes = [len(prompt_entries) for prompt_entries in entries]
        except (KeyError, TypeError, ValueError) as error:
            raise self._unexpected(f"an answer without prompt_logprobs: {str(answer)[:80]}") from error
        if sizes != [len(prompt) for prompt in prompts]:
            raise self._unexpected(f"prompt_logprobs of {sizes} tokens for prompts of {list(map(len, prompts))}")
        return entries

    def _describe(self, model: str | None) -> dict[str, object]:
        """Return name, root and `max_model_len` of a model, as the server lists them.

        model: the name; None if the server has only one model.
        """
        answer = self._request("/v1/models", None)
        try:
            served = {str(entry["id"]): entry for entry in answer["data"]}
        except (KeyError, TypeError) as error:
            raise self._unexpected(f"the list of models {str(answer)[:80]}") from error
        name = next(iter(served), "") if model is None and len(served) == 1 else model
        if name not in served:
            wanted = "several models" if model is None else f"no model {model!r}"
            raise ProviderError(f"{self._url} has {wanted}; choose a --served-model from {', '.join(served) or 'none'}")
        return {key: served[name].get(key) for key in ("id", "root", "max_model_len")}

    def _request(self, path: str, content: object) -> Any:
        return request_json(self._url + path, content, timeout_s=self._timeout_s, pause=self._pause)

    def _unexpected(self, answer: str) -> ProviderError:
        return ProviderError(f"{self._url} answers with {answer}; expected the completions protocol of vLLM")


def request_json(url: str, content: object, *, timeout_s: float, pause: Callable[[float], object]) -> object:
    """Send a request and return the JSON of the answer.

    A request that fails for a transient reason, for example because the server is still starting, is sent again, at
    most `ATTEMPTS` times in total, after pauses of 1, 2, 4, ... seconds.

    Args:
        url: The URL.
        content: Posted as JSON; None sends a GET request.
        timeout_s: The limit of one attempt, in seconds.
        pause: Called with the seconds to wait before the next attempt.

    Raises:
        ProviderError: If the last attempt fails, an attempt fails for another reason, or the answer is not JSON.
    """
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(API_KEY_VARIABLE):
        headers["Authorization"] = f"Bearer {key}"
    data = None if content is None else json.dumps(content).encode()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            request = urllib.request.Request(url, data, headers)
            with urllib.request.urlopen(request, timeout=timeout_s) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}: {_message_of(error)}"
            is_transient = error.code in TRANSIENT
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason, is_transient = first_line(error), not isinstance(error, http.client.InvalidURL)
        except ValueError as error:
            raise ProviderError(f"{url} is not a URL, or its answer is not JSON: {first_line(error)}") from error
        if not is_transient or attempt == ATTEMPTS:
            tries = f" after {attempt} attempts" if attempt > 1 else ""
            raise ProviderError(f"{url} failed{tries}: {reason}; expected a server such as `vllm serve`")
        pause(FIRST_PAUSE_S * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def _message_of(error: urllib.error.HTTPError) -> str:
    """Return the beginning of the server's message, or the name of the status if the message cannot be read."""
    try:
        message = error.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):  # the connection broke after the status
        message = ""
    return message or error.reason
