"""Attacks on the universal logit distillation loss."""

import math
import random
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

TEXTS = ["red green", "naïve — 日本語 text", "🙂🙂 ok", "\N{REPLACEMENT CHARACTER} x \N{REPLACEMENT CHARACTER}", "aaa"]


def byte_tokenizer(size: int) -> Any:
    """Return a byte-level tokenizer, in which rare characters are several tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.BPE())
    model.pre_tokenizer, model.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator(["red green naïve text text aaa aaa ok"] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")


def falsify_tokens_end_where_their_bytes_do(subject: Any) -> None:
    tried = 0
    for size in (257, 280):
        words = byte_tokenizer(size)
        to_byte = {char: byte for byte, char in bytes_of_characters().items()}
        for text in TEXTS:
            tokens = words(text)["input_ids"]
            size_of = [len(words.convert_ids_to_tokens(token)) for token in tokens]  # one character for each byte
            spelled = bytes(to_byte[char] for token in tokens for char in words.convert_ids_to_tokens(token))
            assert spelled == text.encode()
            bounds = {len(text[:n].encode()) for n in range(len(text) + 1)}
            sums = [sum(size_of[: n + 1]) for n in range(len(tokens))]
            wanted = [end if end in bounds else None for end in sums]
            text_seen, seen = subject.spelled(words, [*tokens, words.eos_token_id])
            assert text_seen == spelled + b"\xff", f"{text!r} is spelled {text_seen!r}"
            assert seen == [*wanted, len(spelled) + 1], f"{text!r}: {seen}; expected {wanted}"
            tried += None in wanted
    assert tried, "no token ends within a character; the claim was not tried"


def bytes_of_characters() -> dict[int, str]:
    """Return the character that byte-level tokenizers write for each byte, as GPT-2 defines it."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def falsify_groups_are_the_shortest_common_stretches(subject: Any) -> None:
    @given(st.integers(0, 10**6))
    def check(seed: int) -> None:
        draw = random.Random(seed)
        length = draw.randint(1, 12)

        def cut() -> list[int | None]:
            ends = sorted(draw.sample(range(1, length), draw.randint(0, length - 1)))
            whole = [*ends, *([length] if draw.random() < 0.8 else [])]
            return [None if draw.random() < 0.1 else end for end in whole]

        sides = cut(), cut()
        common = sorted({end for end in sides[0] if end} & {end for end in sides[1] if end})
        groups = subject.align(*sides)
        for side, ends in enumerate(sides):
            numbers = [group[side] for group in groups]
            seen = [ends[one[-1]] for one in numbers]
            assert seen == common, f"{sides}: groups {groups} end at {seen}; expected {common}"
            joined = [number for one in numbers for number in one]
            assert joined == list(range(len(joined))), f"{sides}: groups {groups} leave out or repeat a token"

    check()


def falsify_loss_and_gradient_are_those_of_the_definition(subject: Any) -> None:
    @given(st.integers(0, 10**6), st.sampled_from([1.0, 2.0]))
    def check(seed: int, temperature: float) -> None:
        draw = random.Random(seed)
        sizes = [draw.randint(2, 4), draw.randint(2, 4)]
        V = [draw.randint(2, 6), draw.randint(2, 6)]
        groups: list[Any] = [[], []]
        counts = [0, 0]
        for _ in range(draw.randint(1, 3)):
            for side in (0, 1):
                size = draw.randint(1, sizes[side])
                groups[side].append(range(counts[side], counts[side] + size))
                counts[side] += size
        numbers = [[[draw.gauss(0, 2) for _ in range(V[s])] for _ in range(counts[s])] for s in (0, 1)]
        tokens = [[draw.randrange(V[s]) for _ in range(counts[s])] for s in (0, 1)]

        def seen(logits: list[list[list[float]]], *, tracked: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
            tensors = [torch.tensor(one, dtype=torch.float64) for one in logits]
            tensors[0].requires_grad_(tracked)
            sides = zip(tensors, tokens, groups, strict=True)
            parts = [
                subject.group_probabilities(one, torch.tensor(chosen), of_side, temperature=temperature)
                for one, chosen, of_side in sides
            ]
            return subject.universal_distance(*parts), tensors[0]

        distances, student = seen(numbers, tracked=True)
        wanted = definition(numbers, tokens, groups, temperature)
        worst = max(abs(a - b) for a, b in zip(distances.tolist(), wanted, strict=True))
        assert worst < 1e-12, f"distances {distances.tolist()}; expected {wanted}"
        distances.sum().backward()
        assert student.grad is not None
        n, v, step = draw.randrange(counts[0]), draw.randrange(V[0]), 1e-6
        values = []
        for sign in (1, -1):
            moved = [[list(row) for row in one] for one in numbers]
            moved[0][n][v] += sign * step
            values.append(sum(definition(moved, tokens, groups, temperature)))
        slope, gradient = (values[0] - values[1]) / (2 * step), float(student.grad[n, v])
        # A pair of equal probabilities within a step has a kink: continuous draws have none of that size.
        assert abs(slope - gradient) < 1e-6, f"the gradient is {gradient}; differences give {slope}"

    check()


def definition(numbers: Any, tokens: Any, groups: Any, temperature: float) -> list[float]:
    """Return the distance of each group, by loops over Python floats."""
    sides = []
    for logits, chosen, of_side in zip(numbers, tokens, groups, strict=True):
        probabilities = []
        for row in logits:
            powers = [math.exp(value / temperature) for value in row]
            probabilities.append([power / math.fsum(powers) for power in powers])
        merged = []
        for group in of_side:
            before = math.prod(probabilities[n][chosen[n]] for n in group[:-1])
            merged.append(sorted((before * p for p in probabilities[group[-1]]), reverse=True))
        sides.append(merged)
    longest = max(len(side[0]) for side in sides)
    padded = [[[*row, *[0.0] * (longest - len(row))] for row in side] for side in sides]
    return [math.fsum(abs(p - q) for p, q in zip(*pair, strict=True)) for pair in zip(*padded, strict=True)]


def falsify_equal_tokenizers_give_the_sorted_distance_of_each_position(subject: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(5, 9, generator=draw, dtype=torch.float64) for _ in range(2))
    tokens, ends = torch.randint(9, (5,), generator=draw), [2, 3, 5, 8, 9]
    groups = subject.align(ends, ends)
    assert [(list(one), list(other)) for one, other in groups] == [([n], [n]) for n in range(5)]
    numbers = [group[0] for group in groups]
    p, q = (subject.group_probabilities(logits, tokens, numbers) for logits in (student, teacher))
    wanted = (student.softmax(-1).sort(-1).values - teacher.softmax(-1).sort(-1).values).abs().sum(-1)
    assert torch.allclose(subject.universal_distance(p, q), wanted, rtol=0, atol=1e-12)
    permuted = subject.universal_distance(p, p[:, torch.randperm(9, generator=draw)])
    assert float(permuted.abs().max()) < 1e-15, "other numbers of the same tokens have a distance"
    certain = torch.eye(9, dtype=torch.float64)[:5]
    even = torch.full((5, 18), 1 / 18, dtype=torch.float64)
    assert torch.allclose(subject.universal_distance(certain, even), torch.tensor(2 - 2 / 18, dtype=torch.float64))
