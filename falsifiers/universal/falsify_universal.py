"""Attacks on the universal logit distillation loss."""

import math
import random
from collections.abc import Sequence
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


def sentencepiece_tokenizer() -> Any:
    """Return a tokenizer like the tokenizer of Llama 2: words begin with a space, rare characters are single bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "<end>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdegnrtvx'."]
    merges = [("▁", "a"), ("▁", "▁"), ("a", "b"), ("▁", "n")]
    vocabulary = {name: n for n, name in enumerate([*names, *("".join(pair) for pair in merges)])}
    model = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    model.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    model.decoder = decoders.Sequence(list(parts))
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")


def tidy_tokenizer() -> Any:
    """Return a tokenizer of words between which spaces are written, and then removed before marks and endings."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [
        "<unk>",
        "<end>",
        "a",
        "日",
        ".",
        ",",
        "'",
        "n",
        "t",
        "n't",
        "'t",
        "v",
        "'v",
        "e",
        "r",
        "'re",
        "s",
        "'s",
        "m",
    ]
    model = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>", clean_up_tokenization_spaces=True)


def spelled_by_definition(tokenizer: Any, tokens: Sequence[int]) -> tuple[bytes, list[int | None]]:
    """Return the text and the ends of its tokens, from the text of every beginning."""
    texts = [tokenizer.decode(tokens[:n], skip_special_tokens=True) for n in range(len(tokens) + 1)]
    sizes = [len(text.encode()) for text in texts]
    is_special = [token in tokenizer.all_special_ids for token in tokens]
    cuts = [size for size, special in zip(sizes[1:], is_special, strict=True) if special]
    content = texts[-1].encode()
    parts = [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
    ends = [
        size + sum(is_special[: n + 1]) if texts[-1].startswith(text) else None
        for n, (size, text) in enumerate(zip(sizes[1:], texts[1:], strict=True))
    ]
    whole = [end if end not in ends[n + 1 : n + 2] else None for n, end in enumerate(ends)]
    return b"\xff".join(parts), whole


def falsify_ends_are_those_of_every_beginning(subject: Any) -> None:
    tokenizers = [byte_tokenizer(280), sentencepiece_tokenizer(), tidy_tokenizer()]
    texts = [*TEXTS, "👩\u200d👩\u200d👧  a", "a n 't ' a ' ' ' a .", "  日本 ab ' . a"]
    pieces = ["\N{REPLACEMENT CHARACTER}"] * 4 + ["日", "🙂", " ", "a", "'", "'", "n", "'t", "."]

    def compare(tokenizer: Any, tokens: list[int]) -> None:
        seen, wanted = subject.spelled(tokenizer, tokens), spelled_by_definition(tokenizer, tokens)
        assert seen == wanted, f"{tokenizer.convert_ids_to_tokens(tokens)}: {seen}; expected {wanted}"

    @given(st.integers(0, 10**6), st.sampled_from(tokenizers))
    def check(seed: int, tokenizer: Any) -> None:
        draw = random.Random(seed)
        tokens: list[int] = []
        if draw.random() < 0.3:
            for text in draw.choices(texts, k=6):
                tokens += tokenizer(text)["input_ids"]
        else:
            for piece in draw.choices(pieces, k=draw.randint(1, 30)):
                of_piece = tokenizer(piece)["input_ids"]
                tokens += of_piece[draw.choice([0, -1, -3]) :]  # without the leading space, or parts of a character
        tokens = tokens[draw.choice([0, 0, 1]) : draw.randint(1, 90)]
        for _ in range(draw.choice([0, 3])):
            tokens.insert(draw.randint(0, len(tokens)), tokenizer.eos_token_id)
        compare(tokenizer, tokens)

    check()
    # The text has U+FFFD itself, so half a character at the end of a window seems to be a whole one.
    compare(tokenizers[1], tokenizers[1]("\N{REPLACEMENT CHARACTER}" * 4)["input_ids"][1:-2])


class Counting:
    """A tokenizer that counts the tokens it decodes."""

    is_fast = True

    def __init__(self, tokenizer: Any) -> None:
        self.all_special_ids, self._tokenizer, self.decoded = tokenizer.all_special_ids, tokenizer, 0

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        self.decoded += len(tokens)
        text: str = self._tokenizer.decode(tokens, **options)
        return text


def falsify_work_grows_with_the_length(subject: Any) -> None:
    for tokenizer in (byte_tokenizer(280), sentencepiece_tokenizer(), tidy_tokenizer()):
        tokens = tokenizer("a 日本 ab 🙂 n 't e ' ' ' ' ' ' ' ' ' ' ' ' " * 200)["input_ids"][:2000]
        counts = []
        for size in (len(tokens) // 4, len(tokens)):
            counting = Counting(tokenizer)
            subject.spelled(counting, tokens[:size])
            counts.append(counting.decoded)
        assert counts[1] < 5 * counts[0], f"{counts} tokens are decoded of {len(tokens) // 4} and {len(tokens)}"


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
    for dtype in (torch.float32, torch.bfloat16):  # a long text, whose log-probabilities sum up to about -9,000
        logits, tokens = (3 * torch.randn(4000, 9, generator=draw)).to(dtype), torch.randint(9, (4000,), generator=draw)
        seen = subject.group_probabilities(logits, tokens, [range(n, n + 2) for n in range(0, 4000, 2)])
        log_p = logits.double().log_softmax(-1)
        log_wanted = log_p[1::2] + log_p[::2].gather(1, tokens[::2, None])
        apart = float((seen.double().log() - log_wanted)[log_wanted > -60].abs().max())
        assert apart < 1e-5, f"the logarithm of a probability of 4,000 {dtype} tokens is off by {apart:.1e}"
    certain = torch.eye(9, dtype=torch.float64)[:5]
    even = torch.full((5, 18), 1 / 18, dtype=torch.float64)
    assert torch.allclose(subject.universal_distance(certain, even), torch.tensor(2 - 2 / 18, dtype=torch.float64))
