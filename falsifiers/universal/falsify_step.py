"""Attacks on steps and evaluations of a student whose teacher has another tokenizer.

Groups are the shortest stretches of tokens that have the same bytes in both tokenizations.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from falsifiers.support.assertions import assert_equal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from falsifiers.universal.falsify_universal import byte_tokenizer, definition
from reference_trainer.data.documents import Document, pad_documents
from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.errors import DataError, LogitsError
from reference_trainer.ranks.parallel import ONE_PROCESS, DataParallel
from reference_trainer.training.evaluation import evaluate
from reference_trainer.training.window import WindowSums, kd_window

WORDS = ["red", "green", "naïve", "ok", "text", " ", "<end>"]
ANSWERS = [["red green"], ["text"], ["naïve ok", "green text red"], []]
"""By conversation: its answers; a question precedes each of them."""
LENGTHS = (None, None, 30, None)
"""By conversation: the length in tokens to which the teacher's document is truncated, or None."""
WEIGHTS = Weights(temperature=2.0, ce_weight=0.5, kd_weight=0.7)


def word_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="ok"))
    model.pre_tokenizer, model.decoder = pre_tokenizers.Split(" ", "isolated"), decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")


class TokenizedChats:
    """The conversations in the tokens of one tokenizer.

    Args:
        tokenizer: The tokenizer.
        lead: Text before every answer, which is predicted but not a part of the answer.
        lengths: By conversation: the number of tokens to keep, or None.
        is_bytes: Whether a token has one character per byte; otherwise it is a word.

    Attributes:
        documents: The documents.
        ends: By document and token: (number of the answer, bytes of the answer up to the end of the token); None for a
            token that is not in an answer.
    """

    def __init__(self, tokenizer: Any, *, lead: str, lengths: Sequence[int | None], is_bytes: bool) -> None:
        self.documents: list[Document] = []
        self.ends: list[list[tuple[int, int] | None]] = []
        for answers, length in zip(ANSWERS, lengths, strict=True):
            tokens, flags = list[int](), list[bool]()
            ends = list[tuple[int, int] | None]()
            for number, answer in enumerate([["ok ok"], *([one, "red ok"] for one in answers)]):
                for text, is_given in zip(answer[::-1], (True, False), strict=False):
                    pieces = tokenizer(text if is_given else lead + text)["input_ids"] + [tokenizer.eos_token_id]
                    names = [tokenizer.convert_ids_to_tokens(piece) for piece in pieces]
                    end = 0 if is_given else -len(lead.encode())
                    for name in names:
                        end += 1 if name == "<end>" else len(name if is_bytes else name.encode())
                        ends.append(None if is_given or end <= 0 else (number, end))
                    tokens += pieces
                    flags += [is_given] * len(pieces)
            self.documents.append(Document(torch.tensor(tokens[:length]), given=torch.tensor(flags[:length])))
            self.ends.append(ends[:length])


class Case:
    """Conversations in words and in bytes, tables of logits of both models, and the expected results.

    leads: text before every answer, in words and in bytes.
    """

    def __init__(self, subject: Any, leads: tuple[str, str] = ("", " ")) -> None:
        self.tokenizers = word_tokenizer(), byte_tokenizer(270)
        words = TokenizedChats(self.tokenizers[0], lead=leads[0], lengths=[None] * len(LENGTHS), is_bytes=False)
        letters = TokenizedChats(self.tokenizers[1], lead=leads[1], lengths=LENGTHS, is_bytes=True)
        self.sides = words, letters
        draw = torch.Generator().manual_seed(0)
        sizes = [len(tokenizer) for tokenizer in self.tokenizers]
        self.student, self.teacher = (torch.randn(V, V, generator=draw, dtype=torch.float64) for V in sizes)
        self.pairs = [
            SimpleNamespace(teacher_tokens=two.tokens, groups=self.groups(subject, one, two))
            for one, two in zip(words.documents, letters.documents, strict=True)
        ]

    def groups(self, subject: Any, *documents: Document) -> Tensor:
        plain = [(one.tokens.tolist(), one.given.tolist()) for one in documents if one.given is not None]
        groups = subject.answer_groups(self.tokenizers, plain)
        return torch.tensor([[n for one in pair for n in (one.start, one.stop)] for pair in groups]).view(-1, 4)

    def batch(self, numbers: Sequence[int]) -> Batch:
        padded = pad_documents([self.sides[0].documents[number] for number in numbers], padding_id=0)
        return Batch(padded.tokens, padded.labels, examples=torch.tensor(numbers, dtype=torch.int64))

    def window(
        self,
        subject: Any,
        batches: Sequence[Batch],
        module: Any,
        parallel: Any = ONE_PROCESS,
        weights: Weights = WEIGHTS,
    ) -> WindowSums:
        teacher = subject.AlignedTeacher(FixtureTeacher(self.teacher), self.pairs)
        student: Any = ModuleStudent(module, len(self.student))
        window = kd_window(teacher, student, batches, weights, parallel=parallel, metrics=True)
        assert window is not None
        return window

    def module(self) -> torch.nn.Embedding:
        return torch.nn.Embedding(len(self.student), len(self.student), _weight=self.student.clone())

    def expected_groups(self, number: int) -> list[tuple[list[int], list[int]]]:
        """Return by group the tokens of both sides: those after one common end, up to the next."""
        ends = [side.ends[number] for side in self.sides]
        common = sorted({end for end in ends[0] if end} & {end for end in ends[1] if end})
        groups = []
        for index, end in enumerate(common):
            before = common[index - 1] if index and common[index - 1][0] == end[0] else (end[0], 0)
            one, other = ([n for n, at in enumerate(part) if at and before < at <= end] for part in ends)
            groups.append((one, other))
        return groups

    def has_nan(self, number: int) -> list[bool]:
        """Return by group of a conversation whether logits of the teacher are NaN."""
        tokens = self.sides[1].documents[number].tokens
        is_nan = self.teacher.isnan().any(-1)
        return [
            bool(is_nan[tokens[begin - 1 : end - 1]].any()) for *_, begin, end in self.pairs[number].groups.tolist()
        ]

    def expected_distance(self, student: Tensor, number: int) -> float:
        """Return the sum of the distance over the groups of a conversation, by the definition."""
        groups = self.expected_groups(number)
        tables, logits, targets, ranges = (student, self.teacher), [], [], []
        for s, side in enumerate(self.sides):
            tokens = side.documents[number].tokens.tolist()
            flat = [n for group in groups for n in group[s]]
            logits.append([tables[s][tokens[n - 1]].tolist() for n in flat])
            targets.append([tokens[n] for n in flat])
            begins = [sum(len(group[s]) for group in groups[:g]) for g in range(len(groups) + 1)]
            ranges.append([range(*pair) for pair in itertools.pairwise(begins)])
        return sum(definition(logits, targets, ranges, WEIGHTS.temperature)) if groups else 0.0

    def expected_loss(self, student: Tensor, weights: Weights) -> float:
        """Return the loss of all conversations, divided by the tokens that the student predicts."""
        total, count = 0.0, 0
        for number, document in enumerate(self.sides[0].documents):
            assert document.given is not None
            tokens = document.tokens.tolist()
            at = [n for n in range(1, len(tokens)) if not document.given[n]]
            log_p = student.log_softmax(-1)
            total -= weights.ce_weight * sum(float(log_p[tokens[n - 1], tokens[n]]) for n in at)
            total += weights.kd_weight * self.expected_distance(student, number)
            count += len(at)
        return total / count


def falsify_groups_of_answers_are_those_of_their_bytes(subject: Any) -> None:
    for leads in (("", " "), (" ", ""), ("  ", "\r\n\t")):
        case, sizes = Case(subject, leads), set()
        for number, pair in enumerate(case.pairs):
            seen = [(list(range(a, b)), list(range(c, d))) for a, b, c, d in pair.groups.tolist()]
            expected = case.expected_groups(number)
            assert_equal(f"groups of conversation {number} with the leads {leads}", seen, expected)
            sizes |= {(len(one), len(other)) for one, other in expected}
        assert any(one != other for one, other in sizes), "all groups have equal lengths; nothing was tried"
        count = sum(len(case.expected_groups(number)) for number in (0, 1, 2))
        assert count > 6, f"only {count} groups are compared; expected more than 6"


def falsify_first_token_of_a_document_is_in_no_group(subject: Any) -> None:
    """No logits predict the first token, so a teacher without a start token has no probability of it."""
    words, letters = word_tokenizer(), byte_tokenizer(270)
    answer, text = words("red green")["input_ids"], letters("red green")["input_ids"]
    student = [words.eos_token_id, *answer], [True] + [False] * len(answer)
    seen = subject.answer_groups((words, letters), (student, (text, [False] * len(text))))
    n = len(letters("red")["input_ids"])
    assert_equal("groups", seen, [(range(2, 3), range(n, n + 1)), (range(3, 4), range(n + 1, len(text)))])
    with_marker = [answer[0], *student[0]], [True, *[False] * len(student[0])]
    seen = subject.answer_groups((words, letters), (with_marker, ([0, *text], [True] + [False] * len(text))))
    begins = [one.start for one, _ in seen]
    assert_equal("starts of groups after a special token", begins, [2 + index for index in range(len(answer))])


def falsify_documents_of_other_turns_are_refused(subject: Any) -> None:
    """The same number of documents may be divided at other turns. The subject is `huggingface.pairs`."""
    chats = [SimpleNamespace(documents=[None] * 3, continues=continues) for continues in (b"\0\1\0", b"\0\0\1")]
    subject.check_pairs(Path("chats"), chats[0], chats[0])
    assert_refused("other turns", lambda: subject.check_pairs(Path("chats"), *chats), "turns", kind=DataError)


def falsify_window_has_the_loss_and_gradient_of_the_definition(subject: Any) -> None:
    case, module = Case(subject), None
    trials = [([[3, 1, 0, 2]], WEIGHTS), ([[2, 3], [0], [1]], WEIGHTS)]
    trials += [([[0, 1], [2, 3]], replace(WEIGHTS, **{name: 0.0})) for name in ("ce_weight", "kd_weight")]
    for numbers, weights in trials:
        module, expected = case.module(), case.expected_loss(case.student, weights)
        window = case.window(subject, [case.batch(one) for one in numbers], module, weights=weights)
        seen = float(window.sums["loss"] / window.total)
        assert abs(seen - expected) < 1e-12, f"loss of batches {numbers} with {weights}: {seen}; expected {expected}"
        draw, gradient = random.Random(0), module.weight.grad
        assert gradient is not None
        # Compare the gradient along random directions with central differences of the expected loss.
        for _ in range(2):
            components = [[draw.gauss(0, 1) for _ in row] for row in case.student.tolist()]
            direction, step = torch.tensor(components, dtype=torch.float64), 1e-6
            ends = [case.expected_loss(case.student + sign * step * direction, weights) for sign in (1, -1)]
            slope, derivative = (ends[0] - ends[1]) / (2 * step), float((gradient * direction).sum())
            assert abs(slope - derivative) < 1e-7, f"derivative {derivative}; expected {slope}, by differences"


def falsify_a_teacher_without_numbers_is_refused(subject: Any) -> None:
    """The error has the first group with NaN, by the position that predicts the last token of the group.

    The model also runs for rows that are in no conversation, and have no groups.
    """
    case, forwards = Case(subject), list[Batch]()
    tokens = case.sides[1].documents[0].tokens
    groups = case.pairs[0].groups.tolist()
    case.teacher[tokens[groups[-1][3] - 2]] = math.nan
    broken = [(case.pairs[number].groups[:, 1] - 2)[case.has_nan(number)].tolist() for number in range(len(case.pairs))]
    for numbers in ([3, 0, 1], [2, 0]):
        places = [(b, at) for b, number in enumerate(numbers) for at in broken[number]]
        call = partial(case.window, subject, [case.batch(numbers)], case.module())
        assert_refused(f"NaN in {numbers}", call, "teacher", f"position {min(places)}", kind=LogitsError)
    inner = FixtureTeacher(case.teacher)
    counted = SimpleNamespace(
        vocab_size=inner.vocab_size, logits=lambda batch: forwards.append(batch) or inner.logits(batch)
    )
    seen = subject.AlignedTeacher(counted, case.pairs).aligned(unscored(case.batch([3])), 2.0)
    assert_equal("groups and forwards of a batch without examples", (seen, len(forwards)), ([], 1))


def falsify_two_ranks_have_the_gradient_of_one_batch(subject: Any) -> None:
    case = Case(subject)
    module = case.module()
    whole = case.window(subject, [case.batch([0, 1, 2, 3])], module)
    rows: list[list[list[int] | None]] = [[[1, 3], [0]], [[2], None]]

    def work(rank: int) -> tuple[Tensor, float]:
        wrapped = DistributedDataParallel(case.module())
        template = case.batch([3])  # a rank without work gets a batch without examples
        batches = [unscored(template) if one is None else case.batch(one) for one in rows[rank]]
        window = case.window(subject, batches, wrapped, DataParallel(wrapped))
        return wrapped.module.weight.grad, float(window.sums["loss"])

    seen = run_ranks(2, work)
    assert module.weight.grad is not None
    for rank, (gradient, _) in enumerate(seen):
        difference = float((gradient - module.weight.grad).abs().max())
        assert difference < 1e-14, f"rank {rank}: the gradient differs by {difference} from the gradient of one batch"
    total, expected = sum(loss for _, loss in seen), float(whole.sums["loss"])
    assert abs(total - expected) < 1e-12, f"loss summed over two ranks: {total}; expected {expected}"


def unscored(batch: Batch) -> Batch:
    """Return a batch without labels and without examples."""
    return Batch(batch.tokens[:1], torch.full_like(batch.tokens[:1], -100))


class TwoBatches:
    """The four conversations as rows of an evaluation, in two batches."""

    batches = 2

    def __init__(self, case: Case) -> None:
        self.case = case

    def __len__(self) -> int:
        return 4

    def batch(self, order: Tensor, position: int) -> Batch:
        return self.case.batch([[0, 2], [3, 1]][position - 1])


def falsify_evaluation_has_the_distance_and_no_metric_of_one_vocabulary(subject: Any) -> None:
    case = Case(subject)
    teacher = subject.AlignedTeacher(FixtureTeacher(case.teacher), case.pairs)
    rows: Any = TwoBatches(case)
    student: Any = ModuleStudent(case.module(), len(case.student))
    seen = evaluate(teacher, student, rows, WEIGHTS, accept_depth=2)
    assert_equal("metrics", sorted(seen), ["hard_loss", "token_accuracy", "universal_distance"])
    expected = sum(case.expected_distance(case.student, number) for number in range(4))
    scored = sum(int((~one.given[1:]).sum()) for one in case.sides[0].documents if one.given is not None)
    distance = seen["universal_distance"]
    assert abs(distance.sum - expected) < 1e-12, f"the distance is {distance.sum}; expected {expected}"
    assert_equal("tokens of the distance", distance.count, scored)
