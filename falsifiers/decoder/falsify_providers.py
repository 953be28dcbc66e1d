"""Attacks on the providers around a decoder. The subject is `reference_trainer.distillation.providers`."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import torch
from hypothesis import given

from falsifiers.decoder.cases import DecoderCase, assert_follows_equations, decoder_cases
from falsifiers.support import texts


@given(case=decoder_cases(fewest_tokens=2))
def falsify_providers_return_decoder_logits(subject: Any, device: str, case: DecoderCase) -> None:
    module = case.decoder(importlib.import_module("reference_trainer.models.decoder"), device=device)
    text = torch.cat((case.tokens[0], *case.tokens[1:, 1:])).to(torch.uint8)
    data = importlib.import_module("reference_trainer.data.text")
    sequences = texts.sequences_of(data, text, case.tokens.shape[1], batch_size=9, device=device)
    batch = sequences.batch(torch.arange(len(sequences)), 1)
    with torch.no_grad():
        alone = copy.deepcopy(module)(batch.tokens)
    student = subject.ModuleStudent(copy.deepcopy(module), case.vocab_size).forward(batch).logits
    teacher = subject.ModuleTeacher(copy.deepcopy(module), case.vocab_size).logits(batch)
    for what, seen in (("the student's logits", student), ("the teacher's logits", teacher)):
        assert seen.dtype is torch.float32, f"{what} are {seen.dtype}, the weights float32"
        apart = float((seen - alone).abs().max())
        assert apart <= 1e-6, f"{what} on {seen.device} differ from a forward of the decoder alone by {apart:.3g}"
        assert_follows_equations(what, seen, module, case.heads, batch.tokens)
