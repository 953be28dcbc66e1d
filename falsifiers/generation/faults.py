"""Wrong versions of functions that generate answers: the faults that the contract declares."""

import copy
from dataclasses import replace
from itertools import count
from typing import Any

COUNTED = count()


def initial_copy_generates(original: Any, run: Any, batches: Any) -> Any:
    mixed = original(run, batches)
    copies: list[Any] = []

    def student() -> Any:
        if not copies:
            copies.append(copy.deepcopy(mixed.student()))
        return copies[0]

    return replace(mixed, student=student) if hasattr(mixed, "student") else mixed


def prompts_scored(original: Any, documents: Any, **options: Any) -> Any:
    return original([replace(document, prompt=0) for document in documents], **options)


def end_not_scored(original: Any, model: Any, prompts: Any, sampling: Any) -> Any:
    answers = original(model, prompts, sampling)
    return [answer[:-1] if int(answer[-1]) in sampling.ends and len(answer) > 1 else answer for answer in answers]


def padding_attended(original: Any, model: Any, prompts: Any, sampling: Any) -> Any:
    from torch.nn.functional import pad

    width = max(map(len, prompts))
    return original(model, [pad(prompt, (width - len(prompt), 0)) for prompt in prompts], sampling)


def temperature_ignored(original: Any, model: Any, prompts: Any, sampling: Any) -> Any:
    return original(model, prompts, replace(sampling, temperature=1.0))


def tokens_of_the_student(original: Any, model: Any, prompts: Any, sampling: Any) -> Any:
    return original(model, prompts, replace(sampling, limit=None))


def nucleus_ignored(original: Any, model: Any, prompts: Any, sampling: Any) -> Any:
    return original(model, prompts, replace(sampling, top_p=1.0))


def settings_of_the_model_kept(original: Any, inner: Any, config: Any) -> Any:
    config.repetition_penalty = inner.generation_config.repetition_penalty
    return original(inner, config)


def default_top_k(original: Any, inner: Any, config: Any) -> Any:
    config.top_k = 50
    return original(inner, config)


def seeded_by_calls(original: Any, seed: int, **at: int) -> int:
    return next(COUNTED)


def rank_not_in_seed(original: Any, seed: int, *, rank: int, **at: int) -> int:
    return int(original(seed, rank=0, **at))


def answers_in_prompts(original: Any, batch: Any) -> Any:
    return [tokens[tokens.ne(0).cumprod(0).bool()] for tokens in batch.tokens]


def first_answer_only(original: Any, batch: Any) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return original(batch)


def share_inverted(original: Any, share: float, **at: int) -> bool:
    return bool(original(1 - share, **at))


def epoch_not_in_choice(original: Any, share: float, **at: int) -> bool:
    return bool(original(share, **at | {"epoch": 1}))


def mean_of_means(original: Any, teacher: Any, student: Any, batches: Any, weights: Any, **options: Any) -> Any:
    windows = [original(teacher, student, [batch], weights, **options) for batch in batches]
    first = windows[0]
    means = [window.sums["loss"] / window.total for window in windows]
    return replace(first, sums={**first.sums, "loss": sum(means) / len(means) * first.total})


def start_alone(original: Any, run: Any, batches: Any) -> Any:
    return original(run, batches) if run.settings.objective.on_policy else batches


def share_of_each_epoch(original: Any, run: Any, batches: Any) -> Any:
    mixed = original(run, batches)
    if mixed is batches:
        return batches
    return replace(mixed, share=lambda epoch, position: mixed.share(1, position))
