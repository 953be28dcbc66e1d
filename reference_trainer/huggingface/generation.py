"""On-policy distillation: batches whose answers the student generates, in place of those of the data.

A share lambda of the batches keeps the questions of the data and has new answers, drawn from the student as it is at
the beginning of the step; teacher and student are then compared on what the student writes itself. The gradient does
not pass through the sampling. Source: Agarwal et al. 2024, arXiv:2306.13649, algorithm 1 (generalized knowledge
distillation, GKD).

Whether a batch is generated depends on seed, epoch and number of the batch, and is equal on all ranks; the tokens
depend on the rank and the weights too. So a resumed run generates what an undisturbed one does, and no state is saved.

Shape letters: B batch, T position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import PADDING, Document, pad_documents
from reference_trainer.data.text import Batches, ShuffledBatches
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import evaluating
from reference_trainer.errors import SettingError
from reference_trainer.huggingface.chats import ANSWER, QUESTION
from reference_trainer.huggingface.models import Causal
from reference_trainer.plan.objective import Annealed
from reference_trainer.training.update import micro_batch_seed, own_generators, seed_generators

if TYPE_CHECKING:
    from reference_trainer.huggingface.parts import HuggingFace

SHARES = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How answers are drawn: at most `tokens` of each, from the distribution at `temperature`, cut to its nucleus.

    top_p: the nucleus is the smallest set of most probable tokens with at least this probability. ends: tokens that end
    an answer; they belong to it.
    """

    tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    ends: Set[int] = field(default_factory=frozenset)


def is_generated(share: float, *, seed: int, epoch: int, position: int) -> bool:
    """Return whether the answers of a batch are generated: with the probability `share`, which 0 never and 1 always is.

    The result depends on the arguments alone; with a larger share, a batch that was generated still is.
    """
    digest = hashlib.sha256(f"on-policy/{seed}/{epoch}/{position}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2.0**64


def prompts_of(batch: Batch) -> list[Tensor]:
    """Return for each document with an answer what comes before it, int64 [N] on the CPU; one answer, drawn at random.

    An answer is a run of predicted tokens. Of several, each is drawn with the same probability, from the default
    generator; the answers before it are part of its prompt.
    """
    tokens_BT, labels_BT = batch.tokens.cpu(), batch.labels.cpu()
    segments_BT = torch.ones_like(tokens_BT) if batch.segments is None else batch.segments.cpu()
    prompts = []
    for tokens_T, labels_T, segments_T in zip(tokens_BT, labels_BT, segments_BT, strict=True):
        for number in segments_T[segments_T > 0].unique().tolist():
            inside_T = segments_T == number
            tokens_N, predicted_N = tokens_T[inside_T].long(), labels_T[inside_T] != IGNORE_INDEX
            begins_N = predicted_N.clone()
            begins_N[1:] &= ~predicted_N[:-1]
            begins = begins_N.nonzero().flatten().tolist()
            if begins:
                chosen = begins[int(torch.randint(len(begins), ()))]
                prompts.append(tokens_N[: max(chosen, 1)])  # a model continues at least one token
    return prompts


@torch.no_grad()
def generate_answers(model: Causal, prompts: Sequence[Tensor], sampling: Sampling) -> list[Tensor]:
    """Return an answer to each prompt, int64 [N] on the CPU, up to and including the token that ends it.

    All prompts are one batch, padded on the left, continued by `generate` of transformers with a cache, in eval mode.
    Random numbers are those of the default generator of the model's device. Options in the model's own
    `generation_config`, such as a penalty of repetitions, do not change the distribution. An answer ends without an end
    token after `sampling.tokens` tokens, or where the batch's longest prompt leaves no position of the model.

    Args:
        model: The student.
        prompts: Tokens, integers [N] with N of at least 1 each.
        sampling: How tokens are drawn; the end tokens of the model's `generation_config` end an answer too.
    """
    from transformers import GenerationConfig

    inner: Any = model.model
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner  # an adapter's layers are inside
    device = next(model.parameters()).device
    width = max(len(prompt_N) for prompt_N in prompts)
    tokens_BT = torch.full((len(prompts), width), PADDING, dtype=torch.int64)
    mask_BT = torch.zeros_like(tokens_BT)
    for b, prompt_N in enumerate(prompts):
        tokens_BT[b, width - len(prompt_N) :] = prompt_N
        mask_BT[b, width - len(prompt_N) :] = 1
    ends = sorted(sampling.ends | _ends_of(inner.generation_config))
    places = getattr(inner.config.get_text_config(), "max_position_embeddings", None) or width + sampling.tokens
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=0,  # by default the 50 most probable tokens
        max_new_tokens=max(min(sampling.tokens, places - width), 1),
        eos_token_id=ends or None,
        pad_token_id=PADDING,
        use_cache=True,
    )
    with evaluating(model), own_sampling(inner, config):
        written_BT = inner.generate(inputs=tokens_BT.to(device), attention_mask=mask_BT.to(device))[:, width:].cpu()
    is_end_BT = torch.isin(written_BT, torch.tensor(ends, dtype=torch.int64))
    # The first end of a row is part of the answer, and what follows it is padding.
    sizes = torch.where(is_end_BT.any(1), is_end_BT.int().argmax(1) + 1, written_BT.shape[1]).tolist()
    return [row_T[:size] for row_T, size in zip(written_BT, sizes, strict=True)]


def _ends_of(config: Any) -> set[int]:
    ends = config.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends} - {None}


@contextmanager
def own_sampling(inner: Any, config: Any) -> Iterator[None]:
    """Let a model of transformers generate by `config` alone."""
    before = inner.generation_config
    inner.generation_config = config
    try:
        yield
    finally:
        inner.generation_config = before


def end_tokens(tokenizer: Any, options: Mapping[str, Any]) -> set[int]:
    """Return the tokens that end an answer: end of sequence, and the first special one after an answer in a chat.

    options: variables of the chat template.
    """
    ends = {tokenizer.eos_token_id} - {None}
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template([QUESTION, ANSWER, QUESTION], tokenize=False, **options)
        rest = str(text).rpartition(ANSWER["content"])[2]
        following = tokenizer(rest, add_special_tokens=False)["input_ids"]
        ends |= set([token for token in following if token in tokenizer.added_tokens_decoder][:1])
    return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedBatches:
    """Batches of which a share has answers of the student.

    A generated batch has a row for each document with an answer: its prompt, then the new answer, all of which is
    predicted. It has no `examples`, since no stored outputs of a teacher belong to it. A batch that scores nothing, as
    a rank without work has, stays as it is.

    given: the batches of the data. student: returns the model that generates. share: returns the share for an epoch and
    a position, both from 1. bfloat16: whether the model computes in it, by autocast.
    """

    given: ShuffledBatches
    student: Callable[[], Causal]
    share: Callable[[int, int], float]
    sampling: Sampling
    seed: int
    bfloat16: bool = False

    @property
    def batches(self) -> int:
        return self.given.batches

    @property
    def sequences(self) -> Any:
        """The rows of the data."""
        return self.given.sequences

    def batch(self, epoch: int, position: int) -> Batch:
        batch = self.given.batch(epoch, position)
        if not is_generated(self.share(epoch, position), seed=self.seed, epoch=epoch, position=position):
            return batch
        model, device = self.student(), batch.tokens.device
        # Steps of the loop count from 1, so that no dropout has the same seed.
        seed = micro_batch_seed(self.seed, epoch=epoch, step=0, micro_batch=position, rank=self.given.rank)
        with own_generators(device), torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            seed_generators(seed, device)
            prompts = prompts_of(batch)
            if not prompts:
                return batch
            answers = generate_answers(model, prompts, self.sampling)
        documents = [Document(torch.cat(pair), len(pair[0])) for pair in zip(prompts, answers, strict=True)]
        new = pad_documents(documents, padding_id=PADDING)
        return Batch(tokens=new.tokens.to(device), labels=new.labels.to(device))


def with_generated(run: HuggingFace, batches: ShuffledBatches) -> Batches:
    """Return the batches with the share that the settings ask for; `batches` itself if no step has one."""
    settings = run.settings
    if not (settings.objective.on_policy or settings.objective.on_policy_end):
        return batches
    if settings.objective.ce_weight or settings.objective.ce_weight_end:
        run.lines.write("on_policy: with a ce_weight, the student's own tokens are the labels of generated answers")
    share = _annealed(settings)

    def share_of(epoch: int, position: int) -> float:
        if not isinstance(share, Annealed):
            return share
        schedule = run.schedule
        step = (epoch - 1) * schedule.steps_per_epoch + (position - 1) // schedule.accumulation + 1
        return share.at(step, schedule.planned_steps)

    def student() -> Causal:
        assert isinstance(run.student, Causal)
        return run.student

    ends = end_tokens(run.tokenizer, json.loads(settings.data.template_options or "{}"))
    tokens, temperature, top_p = (
        settings.objective.answer_tokens,
        settings.objective.answer_temperature,
        settings.objective.answer_top_p,
    )
    return MixedBatches(
        given=batches,
        student=student,
        share=share_of,
        sampling=Sampling(tokens=tokens, temperature=temperature, top_p=top_p, ends=ends),
        seed=settings.run.seed,
        bfloat16=settings.run.dtype == "bfloat16",
    )


def _annealed(settings: Settings) -> float | Annealed:
    start, end = settings.objective.on_policy, settings.objective.on_policy_end
    return start if end is None else Annealed(start, end, settings.objective.anneal, name="on_policy", bounds=SHARES)


def check_generation(settings: Settings, world_size: int) -> None:
    """Raise `SettingError` for settings with which a student cannot generate."""
    if not (settings.objective.on_policy or settings.objective.on_policy_end):
        return
    if settings.teacher.outputs is not None:
        raise SettingError(
            f"conflicting settings: 'on_policy' and 'teacher_outputs' ({settings.teacher.outputs}): stored outputs are "
            "of the answers in the data; give --teacher instead"
        )
    if settings.run.strategy == "fsdp2" and world_size > 1:
        raise SettingError("--on-policy cannot generate with a sharded student: expected --strategy ddp")
