"""Attacks on on-policy distillation: the answers that a student generates, and runs that are trained on them."""

import io
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.assertions import assert_equal
from falsifiers.support.causal import NUMBERS, VOCABULARY, WORDS, random_llama, word_tokenizer, write_causal
from reference_trainer.data.text import ShuffledBatches
from reference_trainer.distillation.protocols import Batch
from reference_trainer.huggingface.models import Causal

END, IGNORED, TOKENS, NUCLEUS = 0, -100, 6, 0.5
SIZE = len(VOCABULARY)
SETTINGS: dict[str, Any] = {
    "length": 24,
    "batch_size": 2,
    "accumulate": 2,
    "epochs": 1,
    "lr": 0.05,
    "warmup": 0,
    "hang_after": 0.0,
}
SETTINGS |= {"log_every": 1, "save_every": 2, "answer_tokens": TOKENS, "answer_top_p": NUCLEUS, "eval_rows": 1}


def distill(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    seed: int,
    steps: int,
    compared: bool,
) -> dict[str, Any]:
    """Distill with an on-policy share of 1.

    compared: whether to return the digests of the weights of this run, of an interrupted and resumed run, and of runs
    with other answers in the data and with shares of 0 and 1e-12. Otherwise, return the micro-batches of this run,
    with the student's weights when each was fetched, and which batches are generated where the share grows from 0. The
    student then has tokens that the teacher lacks.
    """
    del subject, trace
    words = word_tokenizer()
    write_causal(directory / "teacher", words, 32, torch.float32, eos_token_id=None)
    write_causal(directory / "student", words, 16, torch.float32, eos_token_id=None)
    usual = SETTINGS | {"seed": seed, "device": device}
    if not compared:
        usual["share_vocabulary"] = "pad"
        random_llama(2 * SIZE, 16, seed=22, eos_token_id=None).save_pretrained(directory / "student")
    for name in ("chats", "others"):
        content = "\n".join(json.dumps({"messages": turns}) for turns in conversations(seed, name))
        (directory / f"{name}.jsonl").write_text(content)
    fetched: list[dict[str, Any]] = []

    def run(name: str, data: str = "chats", **options: Any) -> str:
        paths = {
            "teacher": "teacher",
            "student": "student",
            "data": f"{data}.jsonl",
            "out": name,
            "data_cache": "cache",
        }
        places: dict[str, Any] = {name: directory / path for name, path in paths.items()}
        settings = reference_trainer.Settings(**places, **usual | options)
        with reference_trainer.HuggingFace(settings, lines=reference_trainer.Lines(io.StringIO())) as run:
            run.prepare()
            if name == "growing":
                last, batches = run.batches.batches, run.batches
                ends = [batches.batch(*at).examples is None for at in ((1, 1), (2, last))]
                share = getattr(batches, "share", None)  # batches of the data have none
                shares = [[share(epoch, at) for at in range(1, last + 1)] for epoch in (1, 2)] if share else []
                return json.dumps({"ends": ends, "shares": shares})
            if name == "whole":
                run.batches = record_batches(run, fetched)
            run.conclude(run.run())
        return (directory / name / "manifest.json").read_text()

    with mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}):
        every: dict[str, Any] = {"on_policy": 1.0, "max_steps": steps}
        manifests = {"whole": run("whole", **every)}
        if not compared:
            return {"fetched": fetched, "growing": json.loads(run("growing", on_policy_end=1.0, epochs=2))}
        manifests |= {
            "half": run("parts", on_policy=1.0, max_steps=steps // 2),
            "parts": run("parts", **every, resume=Path("latest"), force=True),
            "others": run("others", "others", **every),
            "zero": run("zero", max_steps=steps),
            "tiny": run("tiny", max_steps=steps, on_policy=1e-12),
        }
    return {"weights": {name: json.loads(text)["sha256"]["model.safetensors"] for name, text in manifests.items()}}


def record_batches(run: Any, fetched: list[dict[str, Any]]) -> Any:
    """Return the batches of a run, which record tokens, labels and the student's weights at every call."""
    batches = run.batches

    def batch(epoch: int, position: int) -> Batch:
        weights = {name: tensor.clone() for name, tensor in run.student.state_dict().items()}
        returned: Batch = batches.batch(epoch, position)
        at = {"position": position, "weights": {name: tensor.tolist() for name, tensor in weights.items()}}
        fetched.append(at | {"tokens": returned.tokens.tolist(), "labels": returned.labels.tolist()})
        return returned

    return SimpleNamespace(batches=batches.batches, batch=batch, sequences=batches.sequences)


def conversations(seed: int, name: str) -> list[list[dict[str, str]]]:
    """Return one question and answer for each number; the answers depend on the name."""
    draw, answering = random.Random(seed), random.Random(f"{seed}/{name}")
    drawn = []
    for number in NUMBERS:
        question = " ".join([number, *draw.choices(WORDS, k=draw.randint(1, 4))])
        answer = " ".join(answering.choices(WORDS, k=4))
        drawn.append([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
    return drawn


def answers_of(micro_batch: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Return the prompt and the scored tokens of each row; assert that these are contiguous and equal their labels."""
    rows = []
    for tokens, labels in zip(micro_batch["tokens"], micro_batch["labels"], strict=True):
        scored = [at for at, label in enumerate(labels) if label != IGNORED]
        assert scored, f"the generated row {tokens} has the labels {labels}; expected a scored token"
        first, last = scored[0], scored[-1]
        assert scored == list(range(first, last + 1)), f"the labels are {labels}; expected contiguous scored tokens"
        assert_equal("labels of the scored tokens", labels[first : last + 1], tokens[first : last + 1])
        rows.append((tokens[:first], tokens[first : last + 1]))
    return rows


def trained_micro_batches(run: Any) -> list[dict[str, Any]]:
    """Return the micro-batches of the training, by position. The trainer fetches one again to count FLOPs."""
    first: dict[int, dict[str, Any]] = {}
    for micro_batch in run.result["fetched"]:
        first.setdefault(micro_batch["position"], micro_batch)
    assert_equal("positions of fetched batches", list(first), list(range(1, 2 * run.arguments["steps"] + 1)))
    return list(first.values())


def student_of(run: Any, micro_batch: dict[str, Any]) -> Any:
    """Return the student as it was when a micro-batch was fetched, in float64, loaded without the trainer."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(run.directory / "student", dtype=torch.float64)
    weights = {name.removeprefix("model."): value for name, value in micro_batch["weights"].items()}
    model.load_state_dict({name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()})
    return model.eval()


def falsify_prompts_are_those_of_the_data_and_not_scored(run: Any) -> None:
    words = word_tokenizer()
    questions = {
        tuple(words.apply_chat_template(turns[:1], add_generation_prompt=True)["input_ids"])
        for turns in conversations(run.arguments["seed"], "chats")
    }
    for micro_batch in trained_micro_batches(run):
        for prompt, answer in answers_of(micro_batch):
            case = f"the prompt of the answer {answer} is {prompt}; expected one of the questions {questions}"
            assert tuple(prompt) in questions, case


def falsify_answers_are_scored_to_their_end(run: Any) -> None:
    complete = 0
    for micro_batch in trained_micro_batches(run):
        for (prompt, answer), tokens in zip(answers_of(micro_batch), micro_batch["tokens"], strict=True):
            assert END not in answer[:-1], f"the answer {answer} continues after its end token {END}"
            has_end = answer[-1] == END
            assert has_end or len(answer) == TOKENS, f"the answer is {answer}; expected an end or {TOKENS} tokens"
            following = tokens[len(prompt) + len(answer) :]
            assert not any(following), f"the answer {answer} is followed by {following}; expected padding"
            complete += has_end
    assert complete, "no answer has an end token, so the claim was not tested"


def falsify_tokens_are_those_of_the_teacher(run: Any) -> None:
    for micro_batch in trained_micro_batches(run):
        largest = max(map(max, micro_batch["tokens"]))
        assert largest < SIZE, f"the student generates token {largest}; expected a token below the teacher's {SIZE}"


@torch.no_grad()
def falsify_answers_are_those_of_the_current_student(run: Any) -> None:
    """Every token must be in the nucleus of the student before its step, some outside the first student's nucleus."""
    micro_batches = trained_micro_batches(run)
    initial, outside_initial = student_of(run, micro_batches[0]), 0
    for micro_batch in micro_batches:
        current = student_of(run, micro_batch)
        for prompt, answer in answers_of(micro_batch):
            tokens = torch.tensor([[*prompt, *answer]])
            for model in (current, initial):
                before = mass_before(model(tokens).logits[0, len(prompt) - 1 : -1, :SIZE], answer)
                # The nucleus has the most probable tokens up to the one with which their sum reaches NUCLEUS; 1e-4 is
                # for the rounding of a student in float32.
                if model is current:
                    case = f"sums of the larger probabilities of {answer} are {before}; expected <= {NUCLEUS}"
                    assert max(before) <= NUCLEUS + 1e-4, case
                else:
                    outside_initial += max(before) > NUCLEUS + 1e-4
    assert outside_initial, "the nucleus of the first student has every answer too, so the claim was not tested"


def mass_before(logits_NV: torch.Tensor, tokens: list[int]) -> list[float]:
    """Return, for each token, the sum of the probabilities of all more probable tokens."""
    probabilities_NV = logits_NV.double().softmax(-1)
    chosen_N1 = probabilities_NV.gather(1, torch.tensor(tokens)[:, None])
    return [float(mass) for mass in torch.where(probabilities_NV > chosen_N1, probabilities_NV, 0.0).sum(-1)]


@torch.no_grad()
def falsify_loss_is_the_mean_over_all_generated_tokens(run: Any) -> None:
    from transformers import AutoModelForCausalLM

    teacher = AutoModelForCausalLM.from_pretrained(run.directory / "teacher", dtype=torch.float64)
    lines = [json.loads(line) for line in (run.directory / "whole/metrics.jsonl").read_text().splitlines()]
    logged = {line["step"]: line["metrics"]["loss"] for line in lines if "loss" in line.get("metrics", {})}
    micro_batches = trained_micro_batches(run)
    for step in range(1, run.arguments["steps"] + 1):
        nats, count = 0.0, 0
        for micro_batch in micro_batches[2 * step - 2 : 2 * step]:
            student = student_of(run, micro_batch)
            for prompt, answer in answers_of(micro_batch):
                tokens = torch.tensor([[*prompt, *answer]])
                log_q, log_p = (m(tokens).logits[0, len(prompt) - 1 : -1].log_softmax(-1) for m in (student, teacher))
                nats += float((log_p.exp() * (log_p - log_q[:, :SIZE])).sum())
                count += len(answer)
        case = f"step {step} logs the loss {logged[step]}; expected {nats / count}, {nats} nats over {count} tokens"
        assert math.isclose(logged[step], nats / count, rel_tol=1e-4), case


def falsify_resumed_run_is_the_undisturbed_one(run: Any) -> None:
    weights = run.result["weights"]
    assert_equal("digest of the weights of a resumed run", weights["parts"], weights["whole"])
    assert weights["half"] != weights["whole"], "the second half changes no weight, so the claim was not tested"


def falsify_answers_of_the_data_are_not_used(run: Any) -> None:
    weights, seed = run.result["weights"], run.arguments["seed"]
    assert conversations(seed, "chats") != conversations(seed, "others"), "both data sets are equal: nothing was tested"
    assert_equal("digest of the weights with other answers in the data", weights["others"], weights["whole"])
    assert weights["zero"] != weights["whole"], f"shares of 0 and 1 give the same weights, {weights['zero']}"


def falsify_share_of_zero_is_an_off_policy_run(run: Any) -> None:
    weights = run.result["weights"]
    assert_equal("digest of the weights with a share of 1e-12, compared with 0", weights["tiny"], weights["zero"])


def falsify_share_that_grows_from_zero_generates(run: Any) -> None:
    ends, shares = run.result["growing"]["ends"], run.result["growing"]["shares"]
    assert_equal("with a share from 0 to 1, whether the first and the last batch are generated", ends, [False, True])
    steps = -(-len(shares[0]) // SETTINGS["accumulate"])
    indices = [[epoch * steps + at // SETTINGS["accumulate"] for at in range(len(shares[0]))] for epoch in (0, 1)]
    expected = [[index / (2 * steps - 1) for index in of_epoch] for of_epoch in indices]
    assert_equal(f"shares of the micro-batches of two epochs of {steps} steps", shares, expected)


POSITIONS = 10
"""Number of positions of a model: fewer than the longest prompt and answer have together."""


def model_of(tokens: int) -> Any:
    """Return a random Llama in float64, in train mode with dropout; its generation_config would change its answers."""
    from transformers import GenerationConfig

    options = {"initializer_range": 0.5, "max_position_embeddings": POSITIONS, "attention_dropout": 0.5}
    model = random_llama(tokens, 16, seed=3, **options).double()
    model.generation_config = GenerationConfig(repetition_penalty=3.0, top_k=1, eos_token_id=7, do_sample=True)
    return Causal(model).train()


def greedy(model: Any, prompt: list[int], count: int, ends: set[int], limit: int | None) -> list[int]:
    """Return the greedy continuation by tokens below the limit, with a forward pass of all tokens for each new one.

    The model is in eval mode afterwards.
    """
    tokens = list(prompt)
    model.eval()
    with torch.no_grad():
        while len(tokens) < len(prompt) + count and (len(tokens) == len(prompt) or tokens[-1] not in ends):
            tokens.append(int(model.model(input_ids=torch.tensor([tokens])).logits[0, -1, :limit].argmax()))
    return tokens[len(prompt) :]


def falsify_batched_answers_are_those_of_each_prompt_alone(subject: Any) -> None:
    model = model_of(12)
    prompts = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=POSITIONS), min_size=1, max_size=4)
    several_ends = st.lists(st.integers(0, 11), min_size=4, max_size=8)
    ends_of_model = st.none() | st.integers(0, 11) | several_ends
    limits = st.sampled_from([None, 11, 12, 13, 6])

    @given(prompts, st.integers(1, 6), st.frozensets(st.integers(0, 11), max_size=6), ends_of_model, limits)
    @example([[9, 2], [3]], 6, frozenset({3}), None, None)  # answers of 2 tokens, which ends with 3, and of 6
    def check(prompts: list[list[int]], count: int, ends: frozenset[int], of_model: Any, limit: int | None) -> None:
        model.model.generation_config.eos_token_id = of_model
        sampling = subject.Sampling(tokens=count, temperature=1e-4, ends=ends, limit=limit)
        answers = subject.generate_answers(model.train(), [torch.tensor(prompt) for prompt in prompts], sampling)
        state = model.training, model.model.generation_config.top_k
        assert_equal("training mode and generation_config.top_k after the answers", state, (True, 1))
        all_ends = {*ends, *(of_model if isinstance(of_model, list) else [of_model])}
        # The longest prompt leaves this number of positions for an answer, which has at least one token.
        length = max(min(count, POSITIONS - max(map(len, prompts))), 1)
        expected = [greedy(model, prompt, length, all_ends, limit) for prompt in prompts]
        case = f"answers to {prompts}, ends {all_ends}, limit {limit}"
        assert_equal(case, [answer.tolist() for answer in answers], expected)

    check()


def falsify_tokens_have_the_probabilities_of_the_nucleus(subject: Any) -> None:
    model, prompt, N = model_of(80).eval(), [1, 5, 2], 4_000
    with torch.no_grad():
        logits_V = model.model(input_ids=torch.tensor([prompt])).logits[0, -1]
    for temperature, top_p, limit in ((1.0, 1.0, None), (4.0, 1.0, 50), (1.5, 0.7, None), (1.5, 0.7, 40)):
        expected_V = torch.zeros(80, dtype=torch.float64)
        expected_V[:limit] = (logits_V[:limit] / temperature).softmax(-1)
        order = expected_V.argsort(descending=True)
        size = int((expected_V[order].cumsum(0) < top_p).sum()) + 1 if top_p < 1 else len(order)
        expected_V[order[size:]] = 0.0
        expected_V /= expected_V.sum()
        sampling = subject.Sampling(tokens=1, temperature=temperature, top_p=top_p, limit=limit)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            drawn = torch.cat(subject.generate_answers(model, [torch.tensor(prompt)] * N, sampling))
        counts_V = torch.bincount(drawn, minlength=80)
        case = f"temperature {temperature}, top_p {top_p}, limit {limit}: {counts_V.tolist()} of {N}"
        case += f"; expected the probabilities {expected_V.tolist()}"
        assert not counts_V[expected_V == 0].any(), case
        # Pearson's chi-squared over tokens that are expected five times or more, and over the others together. Its mean
        # is the number of degrees of freedom k, its variance 2 k; the seed is fixed.
        rare_V = expected_V * N < 5
        observed, expected = (torch.cat([x[~rare_V], x[rare_V].sum()[None]]) for x in (counts_V, expected_V * N))
        squares, freedom = float(((observed - expected) ** 2 / expected.clamp(min=1)).sum()), len(expected) - 1
        assert squares <= freedom + 5 * math.sqrt(2 * freedom), f"chi-squared {squares:.0f}, k = {freedom}; {case}"


def falsify_one_answer_of_a_document_is_replaced(subject: Any) -> None:
    def document(draw: random.Random) -> tuple[list[int], list[bool], list[int]]:
        """Return tokens, whether each is predicted, and the beginnings of answers; questions and answers alternate."""
        tokens: list[int] = []
        predicted: list[bool] = []
        begins: list[int] = []
        sizes = [(draw.randint(1, 3), bool(n % 2)) for n in range(draw.randint(1, 6))]
        for size, is_answer in sizes[draw.choice([0, 0, 1]) if len(sizes) > 1 else 0 :]:  # an answer may come first
            begins += [max(len(tokens), 1)] if is_answer else []
            tokens += [draw.randint(0, 11) for _ in range(size)]
            predicted += [is_answer] * size
        return tokens, predicted, begins

    @given(st.integers(0, 10**6), st.booleans())
    def check(seed: int, packed: bool) -> None:
        draw = random.Random(seed)
        documents = [document(draw) for _ in range(3)]
        rows = [documents[:2], documents[2:]] if packed else [[document] for document in documents]
        width = max(sum(len(tokens) for tokens, _, _ in row) for row in rows)
        tensors = [torch.zeros(len(rows), width, dtype=torch.int64) for _ in range(3)]
        tokens_BT, labels_BT, segments_BT = tensors
        labels_BT.fill_(IGNORED)
        for b, row in enumerate(rows):
            at = 0
            for number, (tokens, predicted, _) in enumerate(row, 1):
                place = slice(at, at + len(tokens))
                tokens_BT[b, place], segments_BT[b, place] = torch.tensor(tokens), number
                labels_BT[b, place] = torch.where(torch.tensor(predicted), torch.tensor(tokens), IGNORED)
                at += len(tokens)
        batch = Batch(tokens=tokens_BT, labels=labels_BT, segments=segments_BT if packed else None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = [prompt.tolist() for _ in range(20) for prompt in subject.prompts_of(batch)]
        with_answers = [document for document in documents if document[2]]
        assert_equal("prompts of twenty draws", len(drawn), 20 * len(with_answers))
        for n, (tokens, _, begins) in enumerate(with_answers):
            expected = {tuple(tokens[:begin]) for begin in begins}
            actual = {tuple(prompt) for prompt in drawn[n :: len(with_answers)]}
            assert actual <= expected, f"the prompts are {actual}; expected some of {expected}"
            # Twenty equal draws have a probability of at most 2^-19; Hypothesis draws the seeds.
            assert len(begins) < 2 or len(actual) > 1, f"twenty draws are all {actual}; expected several of {expected}"

    check()


def falsify_ends_are_those_of_tokenizer_and_template(subject: Any) -> None:
    """Use a template that writes <stop> after an answer if `stops` is set, and then the added token <user>."""
    words = word_tokenizer()
    assert_equal("end tokens of a template that writes the end of a text", subject.end_tokens(words, {}), {END})
    words.add_tokens(["<stop>", "<user>", "<assistant>"], special_tokens=True)
    words.chat_template = words.chat_template.replace("<end>", "{{ '<stop>' if stops else 'w3' }}")
    stop = words.convert_tokens_to_ids("<stop>")
    for options, expected in (({"stops": True}, {END, stop}), ({}, {END, words.convert_tokens_to_ids("<user>")})):
        assert_equal(f"end tokens with {options}", subject.end_tokens(words, options), expected)
    words.eos_token = None
    assert_equal("end tokens without an eos_token", subject.end_tokens(words, {"stops": True}), {stop})
    words.chat_template = None
    assert_equal("end tokens without a template", subject.end_tokens(words, {}), set())


def falsify_share_is_that_of_the_batches(subject: Any) -> None:
    N = 2000
    for share in (0.0, 0.1, 0.5, 1.0):
        chosen = [subject.is_generated(share, seed=1, epoch=1, position=k) for k in range(1, N + 1)]
        # Five standard deviations of a binomial distribution; the choices depend on the seed alone.
        allowed = 5 * math.sqrt(share * (1 - share) / N)
        assert abs(sum(chosen) / N - share) <= allowed, f"share {share}: {sum(chosen)} of {N} batches are generated"
        larger = [subject.is_generated(min(1.0, share + 0.1), seed=1, epoch=1, position=k) for k in range(1, N + 1)]
        missing = [k for k, (a, b) in enumerate(zip(chosen, larger, strict=True), 1) if a and not b]
        assert not missing, f"batches {missing} are generated with share {share}, and not with a larger one"
    half = [
        tuple(subject.is_generated(0.5, seed=seed, epoch=epoch, position=k) for k in range(1, 101))
        for seed, epoch in ((1, 1), (1, 2), (2, 1))
    ]
    assert len(set(half)) == 3, f"two of (seed, epoch) (1, 1), (1, 2) and (2, 1) generate the same batches: {half}"


def falsify_ranks_choose_the_same_batches_and_other_tokens(subject: Any) -> None:
    model = model_of(12)
    tokens_BT = torch.tensor([[1, 2, 3, 4, 5]] * 8)
    labels_BT = torch.where(torch.arange(5) > 2, tokens_BT, IGNORED)
    nothing = Batch(tokens=tokens_BT, labels=torch.full_like(tokens_BT, IGNORED))
    rows: Any = mock.MagicMock(batches=64)
    rows.__len__.return_value = 512
    rows.batch = lambda order, position: Batch(tokens=tokens_BT, labels=labels_BT)
    by_rank: list[list[list[list[int]]]] = []
    for rank in range(2):
        options = {"student": lambda: model, "sampling": subject.Sampling(tokens=4), "seed": 5}
        data_batches = ShuffledBatches(sequences=rows, seed=5, rank=rank, world_size=2)
        mixed = subject.MixedBatches(data_batches=data_batches, share=lambda epoch, position: 0.5, **options)
        by_rank.append([mixed.batch(1, position).tokens.tolist() for position in range(1, 9)])
        before = torch.random.get_rng_state()
        again = [mixed.batch(1, position).tokens.tolist() for position in reversed(range(1, 9))]
        assert_equal("batches of the same positions, fetched in reverse order", again[::-1], by_rank[-1])
        assert torch.equal(before, torch.random.get_rng_state()), "the global generator of torch has changed"
        rows_without: Any = SimpleNamespace(batches=1, sequences=rows, rank=rank, batch=lambda *at: nothing)
        mixed = subject.MixedBatches(data_batches=rows_without, share=lambda epoch, position: 1.0, **options)
        assert mixed.batch(1, 1) is nothing, (
            f"a batch without labels becomes {mixed.batch(1, 1)}; expected it unchanged"
        )
    generated = [[tokens != tokens_BT.tolist() for tokens in of_rank] for of_rank in by_rank]
    assert_equal("whether each batch is generated, on rank 1 and on rank 0", generated[1], generated[0])
    assert 0 < sum(generated[0]) < 8, f"{sum(generated[0])} of 8 batches are generated, so the claim was not tested"
    equal = [first for first, second in zip(*by_rank, strict=True) if first == second != tokens_BT.tolist()]
    assert not equal, f"both ranks generate the tokens {equal}; expected different ones"
