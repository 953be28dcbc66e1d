"""Attacks on the universal logit distillation loss: alignment of the tokens of two tokenizers, distance, gradient.

The end of a token is the number of bytes of text up to it. Tokens of both tokenizers are compared in groups, which end
where both have an end.
"""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.assertions import assert_equal

TEXTS = ["red green", "naïve — 日本語 text", "🙂🙂 ok", "\N{REPLACEMENT CHARACTER} x \N{REPLACEMENT CHARACTER}", "aaa"]


def byte_tokenizer(size: int) -> Any:
    """Return a byte-level BPE tokenizer of `size` tokens; rare characters are several tokens."""
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
    within_characters = 0
    for size in (257, 280):
        tokenizer = byte_tokenizer(size)
        to_byte = {char: byte for byte, char in bytes_of_characters().items()}
        for text in TEXTS:
            tokens = tokenizer(text)["input_ids"]
            pieces = tokenizer.convert_ids_to_tokens(tokens)  # with one character for each byte
            content = bytes(to_byte[char] for piece in pieces for char in piece)
            assert_equal("bytes of the tokens", content, text.encode())
            boundaries = {len(text[:n].encode()) for n in range(len(text) + 1)}
            ends = list(itertools.accumulate(map(len, pieces)))
            # A token that ends within a character has no end; the special token counts as one byte, 0xff.
            expected = [*(end if end in boundaries else None for end in ends), len(content) + 1]
            actual = subject.spelled(tokenizer, [*tokens, tokenizer.eos_token_id])
            assert_equal(f"text and ends of the tokens {pieces}", actual, (content + b"\xff", expected))
            within_characters += None in expected
    assert within_characters, "no token of any text ends within a character, so the claim was not tested"


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
    """Return a word-level tokenizer whose decoder writes spaces between words, except before punctuation and endings.

    That is the setting `clean_up_tokenization_spaces` of transformers: "a n't ." becomes "an't.".
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = "<unk> <end> a 日 . , ' n t n't 't v 'v e r 're s 's m".split()
    model = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>", clean_up_tokenization_spaces=True)


def spelled_by_definition(tokenizer: Any, tokens: Sequence[int]) -> tuple[bytes, list[int | None]]:
    """Return what `spelled` must return, by decoding every prefix of the tokens.

    A token has an end if the text of the tokens up to it is a prefix of the whole text. Of neighbours with equal ends,
    only the last has one. Each special token adds the byte 0xff.
    """
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
    return b"\xff".join(parts), [None if end in ends[n + 1 : n + 2] else end for n, end in enumerate(ends)]


def falsify_ends_are_those_of_every_beginning(subject: Any) -> None:
    tokenizers = [byte_tokenizer(280), sentencepiece_tokenizer(), tidy_tokenizer()]
    texts = [*TEXTS, "👩\u200d👩\u200d👧  a", "a n 't ' a ' ' ' a .", "  日本 ab ' . a"]
    pieces = ["\N{REPLACEMENT CHARACTER}"] * 4 + ["日", "🙂", " ", "a", "'", "'", "n", "'t", "."]

    def compare(tokenizer: Any, tokens: list[int]) -> None:
        name = f"text and ends of the tokens {tokenizer.convert_ids_to_tokens(tokens)}"
        assert_equal(name, subject.spelled(tokenizer, tokens), spelled_by_definition(tokenizer, tokens))

    @given(st.integers(0, 10**6), st.sampled_from(tokenizers))
    def check(seed: int, tokenizer: Any) -> None:
        draw = random.Random(seed)
        tokens: list[int] = []
        if draw.random() < 0.3:
            for text in draw.choices(texts, k=6):
                tokens += tokenizer(text)["input_ids"]
        else:
            for piece in draw.choices(pieces, k=draw.randint(1, 30)):
                piece_tokens = tokenizer(piece)["input_ids"]
                # A suffix of them lacks the leading space, or the first bytes of a character.
                tokens += piece_tokens[draw.choice([0, -1, -3]) :]
        tokens = tokens[draw.choice([0, 0, 1]) : draw.randint(1, 90)]
        for _ in range(draw.choice([0, 3])):
            tokens.insert(draw.randint(0, len(tokens)), tokenizer.eos_token_id)
        compare(tokenizer, tokens)

    check()
    # The decoder writes U+FFFD for a part of a character, and this text itself has U+FFFD.
    compare(tokenizers[1], tokenizers[1]("\N{REPLACEMENT CHARACTER}" * 4)["input_ids"][1:-2])


class CountingTokenizer:
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
            counting = CountingTokenizer(tokenizer)
            subject.spelled(counting, tokens[:size])
            counts.append(counting.decoded)
        assert counts[1] < 5 * counts[0], (
            f"{counts[0]} tokens are decoded for an answer of {len(tokens) // 4} tokens, {counts[1]} for {len(tokens)}"
        )


def falsify_groups_are_the_shortest_common_stretches(subject: Any) -> None:
    @given(st.integers(0, 10**6))
    def check(seed: int) -> None:
        draw = random.Random(seed)
        length = draw.randint(1, 12)

        def draw_ends() -> list[int | None]:
            """Draw the ends of tokens of a text of `length` bytes, some of them None; the last may lack."""
            ends = sorted(draw.sample(range(1, length), draw.randint(0, length - 1)))
            ends += [length] if draw.random() < 0.8 else []
            return [None if draw.random() < 0.1 else end for end in ends]

        sides = draw_ends(), draw_ends()
        common = sorted({end for end in sides[0] if end} & {end for end in sides[1] if end})
        groups = subject.align(*sides)
        for side, ends in enumerate(sides):
            numbers = [group[side] for group in groups]
            assert_equal(f"{sides}: ends of the groups {groups}", [ends[group[-1]] for group in numbers], common)
            tokens = list(itertools.chain(*numbers))
            assert_equal(f"{sides}: tokens in the groups {groups}", tokens, list(range(len(tokens))))

    check()


def falsify_loss_and_gradient_are_those_of_the_definition(subject: Any) -> None:
    @given(st.integers(0, 10**6), st.sampled_from([1.0, 2.0]))
    def check(seed: int, temperature: float) -> None:
        # Lists of two have the student's side first, and then the teacher's.
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
        logits = [[[draw.gauss(0, 2) for _ in range(V[s])] for _ in range(counts[s])] for s in (0, 1)]
        tokens = [[draw.randrange(V[s]) for _ in range(counts[s])] for s in (0, 1)]

        tensors = [torch.tensor(rows, dtype=torch.float64) for rows in logits]
        student = tensors[0].requires_grad_()
        parts = [
            subject.group_probabilities(rows, torch.tensor(labels), of_side, temperature=temperature)
            for rows, labels, of_side in zip(tensors, tokens, groups, strict=True)
        ]
        distances = subject.universal_distance(*parts)
        expected = definition(logits, tokens, groups, temperature)
        worst = max(abs(a - b) for a, b in zip(distances.tolist(), expected, strict=True))
        assert worst < 1e-12, f"the distances are {distances.tolist()}; expected {expected}"
        distances.sum().backward()
        assert student.grad is not None, "the distance does not depend on the student's logits"
        # The central difference of one random element. The distance has a kink where two sorted probabilities are
        # equal; random logits are practically never that close.
        n, v, step = draw.randrange(counts[0]), draw.randrange(V[0]), 1e-6
        values = []
        for sign in (1, -1):
            shifted = [[list(row) for row in rows] for rows in logits]
            shifted[0][n][v] += sign * step
            values.append(sum(definition(shifted, tokens, groups, temperature)))
        slope, gradient = (values[0] - values[1]) / (2 * step), float(student.grad[n, v])
        assert abs(slope - gradient) < 1e-6, f"the gradient is {gradient}; expected the central difference {slope}"

    check()


def definition(logits: Any, tokens: Any, groups: Any, temperature: float) -> list[float]:
    """Return the distance of each group, by loops over Python floats.

    Each argument has a list for the student and one for the teacher: rows of logits, the token that follows each row,
    and the rows of each group. The distributions of a group are sorted and compared element by element; the shorter one
    is padded with zeros.
    """
    sides = []
    for rows, labels, of_side in zip(logits, tokens, groups, strict=True):
        probabilities = []
        for row in rows:
            powers = [math.exp(value / temperature) for value in row]
            probabilities.append([power / math.fsum(powers) for power in powers])
        merged = []
        for group in of_side:
            # The probability of all tokens of the group, for each choice of the last one.
            before = math.prod(probabilities[n][labels[n]] for n in group[:-1])
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
    actual = [tuple(map(list, group)) for group in groups]
    assert_equal("groups of equal ends", actual, [([n], [n]) for n in range(5)])
    numbers = [group[0] for group in groups]
    p, q = (subject.group_probabilities(logits, tokens, numbers) for logits in (student, teacher))
    expected = (student.softmax(-1).sort(-1).values - teacher.softmax(-1).sort(-1).values).abs().sum(-1)
    _assert_distances("of each position", subject.universal_distance(p, q), expected, 1e-12)
    permuted = subject.universal_distance(p, p[:, torch.randperm(9, generator=draw)])
    _assert_distances("to a permutation of the same probabilities", permuted, torch.zeros(5), 1e-15)
    # A long text: running sums of its log-probabilities reach about -9,000, where float32 has few digits left.
    for dtype in (torch.float32, torch.bfloat16):
        logits, tokens = (3 * torch.randn(4000, 9, generator=draw)).to(dtype), torch.randint(9, (4000,), generator=draw)
        actual = subject.group_probabilities(logits, tokens, [range(n, n + 2) for n in range(0, 4000, 2)])
        log_p = logits.double().log_softmax(-1)
        log_expected = log_p[1::2] + log_p[::2].gather(1, tokens[::2, None])
        # Smaller probabilities are near the underflow of float32.
        error = float((actual.double().log() - log_expected)[log_expected > -60].abs().max())
        assert error < 1e-5, f"log-probabilities of 4,000 {dtype} tokens have an error of {error:.1e}; allowed 1e-5"
    certain = torch.eye(9, dtype=torch.float64)[:5]
    even = torch.full((5, 18), 1 / 18, dtype=torch.float64)
    distances = subject.universal_distance(certain, even)
    expected = torch.tensor(2 - 2 / 18, dtype=torch.float64)
    _assert_distances("of one certain token to 18 equally probable ones", distances, expected, 1e-12)


def _assert_distances(name: str, actual: torch.Tensor, expected: torch.Tensor, allowed: float) -> None:
    error = float((actual - expected).abs().max())
    assert error <= allowed, f"distances {name} are {actual.tolist()}; expected {expected.tolist()}, within {allowed}"
