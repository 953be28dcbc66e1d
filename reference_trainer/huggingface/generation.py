"""On-policy distillation: in some batches, answers of the student replace the answers of the data.

In a share of the batches, the answers of the data are replaced by answers that the student samples with its weights at
the beginning of the step; teacher and student are compared on the new answers. The gradient does not pass through the
sampling. Source: Agarwal et al. 2024, arXiv:2306.13649, algorithm 1 (generalized knowledge distillation, GKD), where
the share is called lambda.

Whether a batch is generated depends on seed, epoch and number of the batch, so all ranks agree without a message. The
tokens also depend on the rank and the weights. A resumed run therefore generates the same answers as an
uninterrupted run, and checkpoints need no generator state.

Shape letters: B batch, T position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reference_trainer.config.settings import Settings
from reference_trainer.data.documents import PADDING, Document, document_positions, pad_documents
from reference_trainer.data.text import Batches, ShuffledBatches
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import evaluating
from reference_trainer.errors import SettingError
from reference_trainer.huggingface.chats import ANSWER, QUESTION
from reference_trainer.huggingface.models import Causal
from reference_trainer.plan.objective import Annealed
from reference_trainer.training.update import micro_batch_seed, preserve_generators, seed_generators

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

    from reference_trainer.huggingface.parts import HuggingFace

SHARES = (0.0, 1.0)
"""The bounds of the share of generated batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Options for sampling the tokens of an answer.

    Attributes:
        tokens: The largest number of tokens of an answer.
        temperature: The divisor of the logits.
        top_p: The probability of the nucleus: only the smallest set of most probable tokens with at least this
            probability is sampled.
        ends: Tokens that end an answer; the end token is the last token of the answer.
        limit: Only token ids below this number are sampled; None for no limit.
    """

    tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    ends: Set[int] = field(default_factory=frozenset)
    limit: int | None = None


def is_generated(share: float, *, seed: int, epoch: int, position: int) -> bool:
    """Return whether the answers of a batch are generated: with probability `share`, from 0 (never) to 1 (always).

    The result depends only on the arguments. A batch that is generated with one
    share is also generated with every larger share.
    """
    # The first 64 bits of a hash are uniform in [0, 2^64), also for neighbouring positions.
    digest = hashlib.sha256(f"on-policy/{seed}/{epoch}/{position}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2.0**64


def prompts_of(batch: Batch) -> list[Tensor]:
    """Return one prompt for each document of a batch that has an answer.

    An answer is a run of predicted tokens, and its prompt is all earlier tokens of the document. If a document has
    several answers, one is drawn uniformly with the default generator of PyTorch.

    Returns:
        Tokens, int64 [N] on the CPU, with N of at least 1.
    """
    tokens_BT, labels_BT = batch.tokens.cpu(), batch.labels.cpu()
    prompts = []
    for row, positions_N in document_positions(batch):
        tokens_N, predicted_N = tokens_BT[row, positions_N].long(), labels_BT[row, positions_N] != IGNORE_INDEX
        # An answer begins at a predicted token that is the first token, or follows a token that is not predicted.
        begins_N = predicted_N.clone()
        begins_N[1:] &= ~predicted_N[:-1]
        begins = begins_N.nonzero().flatten().tolist()
        if begins:
            chosen = begins[int(torch.randint(len(begins), ()))]
            prompts.append(tokens_N[: max(chosen, 1)])  # a model cannot continue an empty prompt
    return prompts


@torch.no_grad()
def generate_answers(model: Causal, prompts: Sequence[Tensor], sampling: Sampling) -> list[Tensor]:
    """Sample an answer of the model to each prompt, in eval mode, by `generate` of transformers with a cache.

    Tokens are drawn by the default generator of the model's device. Except for end tokens, options in the
    `generation_config` of the model, such as a repetition penalty, have no effect. An answer without an end token was
    cut at its maximum length: `sampling.tokens`, or fewer if the model has not enough positions after the longest
    prompt of the batch.

    Args:
        model: The student.
        prompts: Tokens, integers [N], with N of at least 1.
        sampling: Options; the end tokens of the model's `generation_config` end an answer too.

    Returns:
        The tokens of the answers, int64 [N] on the CPU, up to and including the end token.
    """
    from transformers import GenerationConfig

    inner = model.model
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner  # of PEFT, with the adapter layers
    device = next(model.parameters()).device
    # One batch, padded on the left, so that all answers begin at the same position.
    width = max(len(prompt_N) for prompt_N in prompts)
    tokens_BT = torch.full((len(prompts), width), PADDING, dtype=torch.int64)
    mask_BT = torch.zeros_like(tokens_BT)
    for b, prompt_N in enumerate(prompts):
        tokens_BT[b, width - len(prompt_N) :] = prompt_N
        mask_BT[b, width - len(prompt_N) :] = 1
    ends = sorted(sampling.ends | _ends_of(inner.generation_config))
    max_positions = getattr(inner.config.get_text_config(), "max_position_embeddings", None) or width + sampling.tokens
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=0,  # no limit; the default is the 50 most probable tokens
        max_new_tokens=max(min(sampling.tokens, max_positions - width), 1),
        suppress_tokens=None if sampling.limit is None else [*range(sampling.limit, model.vocab_size)] or None,
        eos_token_id=ends or None,
        pad_token_id=PADDING,
        use_cache=True,
    )
    with evaluating(model), replace_generation_config(inner, config):
        written_BT = inner.generate(inputs=tokens_BT.to(device), attention_mask=mask_BT.to(device))[:, width:].cpu()
    is_end_BT = torch.isin(written_BT, torch.tensor(ends, dtype=torch.int64))
    # The first end token of a row is the last token of its answer; padding follows.
    sizes = torch.where(is_end_BT.any(1), is_end_BT.int().argmax(1) + 1, written_BT.shape[1]).tolist()
    return [row_T[:size] for row_T, size in zip(written_BT, sizes, strict=True)]


def _ends_of(config: GenerationConfig) -> set[int]:
    """Return the end tokens of a `generation_config`: one number, several or none."""
    ends = config.eos_token_id
    return set(ends) if isinstance(ends, list) else {ends} - {None}


@contextmanager
def replace_generation_config(inner: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Replace the `generation_config` of a model of transformers within the context."""
    before = inner.generation_config
    inner.generation_config = config
    try:
        yield
    finally:
        inner.generation_config = before


def end_tokens(tokenizer: PreTrainedTokenizerBase, options: Mapping[str, object]) -> set[int]:
    """Return the end-of-sequence token, and the first added token that the chat template writes after an answer.

    Args:
        tokenizer: A tokenizer of transformers.
        options: Variables of the chat template.
    """
    ends = {tokenizer.eos_token_id} - {None}
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template([QUESTION, ANSWER, QUESTION], tokenize=False, **options)
        text_after = str(text).rpartition(ANSWER["content"])[2]  # the end of the answer, and the second question
        tokens_after = tokenizer(text_after, add_special_tokens=False)["input_ids"]
        ends |= set([token for token in tokens_after if token in tokenizer.added_tokens_decoder][:1])
    return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedBatches:
    """Batches of the data; in a share of the batches, the student generates the answers.

    A generated batch has one padded row for each document with an answer: the prompt, then the new answer. Only the
    tokens of the new answer are labels. A generated batch has no `examples`, because stored teacher outputs do not
    cover it. A batch without predicted tokens is not changed.

    Attributes:
        data_batches: The batches of the data.
        student: Returns the model that generates.
        share: Returns the share for an epoch and a position in the epoch, both from 1.
        sampling: Options for sampling tokens.
        limit: Returns `Sampling.limit`; a function, because the limit is known only after the teacher is loaded.
        seed: The seed of the run.
        bfloat16: Whether the model computes in bfloat16, by autocast.
    """

    data_batches: ShuffledBatches
    student: Callable[[], Causal]
    share: Callable[[int, int], float]
    sampling: Sampling
    seed: int
    limit: Callable[[], int | None] = lambda: None
    bfloat16: bool = False

    @property
    def batches(self) -> int:
        """The number of batches of an epoch."""
        return self.data_batches.batches

    @property
    def sequences(self) -> object:
        """The rows of the data."""
        return self.data_batches.sequences

    def batch(self, epoch: int, position: int) -> Batch:
        """Return batch `position` of an epoch, both from 1. The state of the process's generators does not change."""
        batch = self.data_batches.batch(epoch, position)
        if not is_generated(self.share(epoch, position), seed=self.seed, epoch=epoch, position=position):
            return batch
        model, device = self.student(), batch.tokens.device
        # Dropout seeds are made from steps from 1 on, so seeds of step 0 differ from all dropout seeds.
        seed = micro_batch_seed(self.seed, epoch=epoch, step=0, micro_batch=position, rank=self.data_batches.rank)
        with preserve_generators(device), torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.bfloat16):
            seed_generators(seed, device)
            prompts = prompts_of(batch)
            if not prompts:
                return batch
            answers = generate_answers(model, prompts, replace(self.sampling, limit=self.limit()))
        documents = [Document(torch.cat(pair), len(pair[0])) for pair in zip(prompts, answers, strict=True)]
        generated = pad_documents(documents, padding_id=PADDING)
        return Batch(tokens=generated.tokens.to(device), labels=generated.labels.to(device))


def with_generated(run: HuggingFace, batches: ShuffledBatches) -> Batches:
    """Return `MixedBatches` if the setting `on_policy` is used, else `batches`.

    Args:
        run: The run, for settings, tokenizer, student and schedule.
        batches: The batches of the data.
    """
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

    def limit() -> int | None:
        # A teacher in this process cannot read token ids beyond its vocabulary, which may be the smaller one.
        return None if settings.teacher.share_vocabulary is None or run.served else run.teacher_vocab_size()

    ends = end_tokens(run.tokenizer, json.loads(settings.data.template_options or "{}"))
    tokens, temperature, top_p = (
        settings.objective.answer_tokens,
        settings.objective.answer_temperature,
        settings.objective.answer_top_p,
    )
    return MixedBatches(
        data_batches=batches,
        student=student,
        share=share_of,
        sampling=Sampling(tokens=tokens, temperature=temperature, top_p=top_p, ends=ends),
        seed=settings.run.seed,
        limit=limit,
        bfloat16=settings.run.dtype == "bfloat16",
    )


def _annealed(settings: Settings) -> float | Annealed:
    """Return the share of generated batches: a constant, or a function of the step."""
    start, end = settings.objective.on_policy, settings.objective.on_policy_end
    return start if end is None else Annealed(start, end, settings.objective.anneal, name="on_policy", bounds=SHARES)


def check_generation(settings: Settings, world_size: int) -> None:
    """Raise `SettingError` if another setting excludes `on_policy`."""
    if not (settings.objective.on_policy or settings.objective.on_policy_end):
        return
    if settings.teacher.outputs is not None:
        raise SettingError(
            f"conflicting settings: 'on_policy' and 'teacher_outputs' ({settings.teacher.outputs}): stored outputs are "
            "of the answers in the data; give --teacher instead"
        )
    if settings.run.strategy == "fsdp2" and world_size > 1:
        raise SettingError("--on-policy cannot generate with a sharded student: expected --strategy ddp")
