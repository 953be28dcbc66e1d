"""Claims about language models and masks: shift of labels, padding, ends of texts, and results of probes."""

from collections import defaultdict
from collections.abc import Iterator

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Process, Run

VISIBLE = 1e-3
"""Smallest change of outputs, relative to their standard deviation, that rounding does not explain."""
EQUAL = 1e-6
"""Largest change of outputs, relative to their standard deviation, that counts as no change."""
NO_TEXT = "no loss has tokens of the model's input as labels"


def _batches(process: Process) -> dict[int, list[Event]]:
    """Return the batches whose labels were compared with the tokens, by the key of the loss."""
    batches: dict[int, list[Event]] = defaultdict(list)
    for event in process.of("labels"):
        if event["facts"]:
            batches[event["key"]].append(event)
    return batches


def _shares(batches: list[Event]) -> dict[int, float]:
    """Return, by offset, the fraction of the scored labels at t that equal the token at t + offset.

    The time axis is the axis with the largest fraction.
    """
    # At least 32 labels, so that a fraction of 95 % is not a coincidence of a few tokens.
    best: dict[int, float] = {}
    for axis in (1, 0):
        counts: dict[str, list[list[int]]] = defaultdict(list)
        for event in batches:
            for shift in event["facts"]["shift"]:
                if shift["axis"] == axis and not shift["wraps"]:
                    for offset, pair in shift["counts"].items():
                        counts[offset].append(pair)
        shares = {
            int(offset): sum(equal for equal, _ in pairs) / sum(compared for _, compared in pairs)
            for offset, pairs in counts.items()
            if sum(compared for _, compared in pairs) >= 32
        }
        if max(shares.values(), default=0.0) > max(best.values(), default=0.0):
            best = shares
    return best


def _is_next_token(batches: list[Event]) -> bool:
    """Return whether the labels are the next tokens of the input."""
    return _shares(batches).get(1, 0.0) >= 0.95


def _probes(run: Run, record: Record, name: str) -> Iterator[tuple[Process, Event]]:
    """Yield the results of a probe with their processes; record the first reason for a missing or failed one."""
    for process in run.processes:
        for event in process.of("no_probe"):
            record.not_reached = record.not_reached or event["reason"]
        for event in process.of("probe"):
            if event["probe"] == name:
                if event["failed"]:
                    record.not_reached = record.not_reached or event["failed"]
                else:
                    yield process, event


@claim("TR-SHIFT-001", NO_TEXT)
def labels_are_the_next_tokens(run: Run, record: Record) -> None:
    """Labels are shifted twice, or not at all, although the model is causal.

    1. Twice: labels equal the token after the next token. No loss of the run has the next tokens as labels, which rules
       out a model that predicts several tokens. The embeddings are trained, which rules out a head on a frozen model.
       The script already has a tensor of the next tokens, as an argument of the model or in the batch, and shifts this
       tensor again.
    2. Not at all: labels equal the input tokens. The logits at a token depend on this token, which rules out a model
       that shifts its input itself. A causal operation runs, and no logit depends on later tokens, which rules out
       masked language models and autoencoders.

    Labels that equal the previous tokens are a hint.
    """
    for process in run.processes:
        batches = _batches(process)
        shares = {key: _shares(events) for key, events in batches.items()}
        next_token = [key for key, share in shares.items() if share.get(1, 0.0) >= 0.9]
        probes = {e["model"]: e for e in process.of("probe") if e["probe"] == "future" and not e["failed"]}
        for key, share in shares.items():
            if not share or max(share.values()) < 0.95:
                continue
            record.tried += len(batches[key])
            if len(batches[key]) < 3 or next_token or min(e["facts"]["kinds"] for e in batches[key]) < 4:
                continue
            # Only one offset may have a large share: periodic texts have large shares at several offsets.
            offset = max(share, key=lambda shift: share[shift])
            if any(value >= 0.5 for other, value in share.items() if other != offset):
                continue
            at, facts = batches[key][0]["at"], [e["facts"] for e in batches[key]]
            percent = 100 * share[offset]
            seen = f"in {len(facts)} batches, {percent:.4g} % of the labels at position t are the input token at t"
            if offset == 2:
                sure = all(fact["delivered"] and fact["embeddings_train"] for fact in facts) and share[2] >= 0.98
                add = record.falsify if sure else record.hint
                already = "; the script already has a tensor of the next tokens, and shifts it again" if sure else ""
                seen += f" + 2, and {100 * share[1]:.3g} % the token at t + 1: labels are shifted twice{already}"
                add(at, seen, "shift labels once: compare logits[:, :-1] with tokens[:, 1:]")
            elif offset == 0:
                probe = probes.get(batches[key][0]["model"])
                if probe is None:
                    record.tried -= len(batches[key])
                    record.not_reached = (
                        "the labels are the tokens of the input, and no probe shows whether the model copies them"
                    )
                    continue
                # One causal operation is enough: an encoder of another text may see the whole text.
                causal = any(probe[kind]["causal"] for kind in ("attention", "recurrent"))
                sure = probe["offset"] == 0 and causal and share[0] >= 0.999
                if sure and probe["early"] <= EQUAL and probe["same"] > 10 * VISIBLE:
                    record.falsify(
                        at,
                        f"{seen}, and the logits at t depend on this token: labels are not shifted, so the causal "
                        "model learns to copy its input",
                        "shift the labels: compare logits[:, :-1] with labels[:, 1:]",
                    )
            elif offset == -1:
                record.hint(
                    at,
                    f"{seen} - 1: labels are shifted in the wrong direction",
                    "shift labels the other way: compare logits[:, :-1] with labels[:, 1:]",
                )


@claim("TR-MASK-001", "no positions of padding have labels")
def padding_is_not_scored(run: Run, record: Record) -> None:
    """Padding is scored, with the label of a real token.

    The script itself declares which positions are padding: by a mask, or by the `padding_idx` of an embedding. Except
    in a language model, the label of padding is also the label of real tokens, which rules out a separate class for
    padding. The gradient of the loss at padding is not 0, which rules out a mask that is applied to the loss later.

    In a language model, padding may stand for the end of a text. This is ruled out if no text contains the padding
    token and texts have another end: the end token of the model's configuration, or a token that is the last of every
    text. Otherwise the finding is a hint.
    """
    for process in run.processes:
        for batches in _batches(process).values():
            # Padding must be declared by the script. Tokens that merely look like padding are not judged.
            padded = [e for e in batches if (e["facts"].get("padding") or {}).get("declared")]
            facts = [e["facts"]["padding"] for e in padded]
            facts = [fact for fact in facts if fact["positions"]]
            record.tried += len(facts)
            positions = sum(fact["positions"] for fact in facts)
            used = sum(fact["used"] for fact in facts)
            scored = sum(fact["scored"] for fact in facts)
            labels = {fact["label"] for fact in facts if fact["scored"]}
            next_token = _is_next_token(batches)
            # In a language model, the last position of a row has no label, and short padding is mostly this position.
            least = 0.3 * positions if next_token else 0.9 * positions
            if len(facts) < 2 or used < max(least, 0.9 * scored) or len(labels) != 1 or None in labels:
                continue
            (label,) = labels
            real = sum(fact["same_label_elsewhere"] for fact in facts)
            ignored = sum(fact["ignored_elsewhere"] for fact in facts)
            seen = (
                f"{used} of {positions} positions that {facts[0]['declared']} marks as padding (token "
                f"{facts[0]['token']}) count in the loss, with label {label}"
            )
            right = "give padding the label -100, or pass the label of padding to the loss as ignore_index"
            # The end tokens of the texts, as far as they are known.
            ends = {end for fact in facts for end in fact.get("ends", ())} if facts[0].get("ends") else set()
            if next_token:
                is_padding_token = label == facts[0]["token"] and not any(
                    fact.get("in_texts", 1) or not fact["ends"] for fact in facts
                )
                sure = is_padding_token and not real and label not in ends and len(ends) == 1
                if sure and used >= 8:
                    (end,) = ends
                    record.falsify(
                        padded[0]["at"], f"{seen}; texts end with token {end}, and contain no token {label}", right
                    )
                    continue
            if real >= 3 and not ignored and not next_token:
                record.falsify(padded[0]["at"], f"{seen}; {real} real tokens have this label too", right)
            else:
                record.hint(padded[0]["at"], seen, right)


@claim("TR-MASK-002", "no text ends with the padding token")
def ends_are_scored(run: Run, record: Record) -> None:
    """The end token is also the padding token, and labels are masked by value: no end is ever learned.

    The mask of the model, or a batch that is padded to its longest row, shows that these tokens are real ends. A script
    that adds ends to texts, and shows them to the model, wants the model to learn them. The token before the end is
    scored, which rules out that the whole answer is left out on purpose.
    """
    for process in run.processes:
        for batches in _batches(process).values():
            if not _is_next_token(batches):
                continue
            # `ends`: facts about the rows of a batch whose last real token is the padding token.
            ended = [e for e in batches if e["facts"].get("ends")]
            facts = [e["facts"]["ends"] for e in ended]
            masked = [fact for fact in facts if fact["masked"]]
            if not masked:
                whole = all(fact["ends"] == fact["rows"] and not fact["shortest_padding"] for fact in facts)
                if not whole or len(facts) < 3 or len({fact["width"] for fact in facts}) < 2:
                    continue
            else:
                facts = masked
            ends = sum(fact["ends"] for fact in facts)
            record.tried += ends
            before = sum(fact["scored_before"] for fact in facts)
            # Eight ends, none of them scored, although 90 % of the tokens before them are.
            if ends < 8 or sum(fact["scored_anywhere"] for fact in facts) or before < 0.9 * ends:
                continue
            record.falsify(
                ended[0]["at"],
                f"{ends} texts end with token {facts[0]['token']}, which is also the padding token, and none of these "
                f"end tokens counts in the loss, although {before} of the tokens before them do: labels are masked by "
                "value, so the model never learns to end a text",
                "mask labels where the attention mask is 0, not where they equal the padding token",
            )


@claim("TR-MASK-003", "no probed model has attention and a mask of padding")
def mask_is_used(run: Run, record: Record) -> None:
    """A mask of padding changes no output, or hides the real tokens instead of the padding.

    Three cases falsify the claim:

    1. Not used: embeddings of padding affect outputs of real tokens through attention, and the mask changes no output.
    2. Inverted: no real token depends on the first real token, and real tokens depend on padding.
    3. A float mask of zeros and ones is added to the scores of attention, so it hides nothing. The tensor is causal, or
       equal for all queries, which rules out a bias for the edges of a graph.
    """
    for process, probe in _probes(run, record, "attention"):
        record.tried += bool(probe.get("masks"))
        if probe["masks_of_ones"]:
            record.falsify(
                probe["at"],
                f"{probe['masks_of_ones']} attention masks in {process.kinds.get(probe['model'])} are float tensors of "
                "zeros and ones; a float mask is added to the scores, so these masks hide nothing",
                "pass a boolean mask: mask.bool()",
            )
    for process, probe in _probes(run, record, "padding"):
        if not probe["mask"] or not sum(probe["attention"].values()):
            continue
        record.tried += 1
        name, real = process.kinds.get(probe["model"]), probe["real"]
        seen = (
            f"when the embeddings of padding change, the outputs of {name} at real tokens change by {real:.2g} of "
            "their standard deviation"
        )
        if not probe["mask_used"] and real > VISIBLE:
            record.falsify(
                probe["at"],
                f"{seen}, and the mask argument changes no output: the mask is not used",
                "pass the mask to the attention, for example src_key_padding_mask=~mask",
            )
        elif probe["other_tokens"] is not None and probe["other_tokens"] <= EQUAL and real > 10 * VISIBLE:
            record.falsify(
                probe["at"],
                f"{seen}; when the embeddings of the first real token change, the outputs at other tokens do not: the "
                "mask is inverted",
                "invert the mask: key_padding_mask is True at padding, attn_mask of scaled_dot_product_attention is "
                "True at real tokens",
            )


@claim("TR-MASK-004", "no masked language model was seen")
def masked_tokens_are_predicted(run: Run, record: Record) -> None:
    """Labels are taken from the input after it was masked, or share its memory: the mask token predicts itself.

    The mask token is the token at half or more of the scored positions, and at no other position. All scored labels
    must equal the input at their position, which rules out a denoising model. An autoencoder has no mask token.
    """
    for process in run.processes:
        for batches in _batches(process).values():
            masked = [e["facts"] for e in batches if e["facts"].get("masked")]
            scored = sum(fact["scored"] for fact in masked)
            at_mask_token = sum(fact["masked"]["scored"] for fact in masked)
            tokens = {fact["masked"]["token"] for fact in masked}
            elsewhere = any(fact["masked"]["elsewhere"] for fact in masked)
            if len(tokens) != 1 or at_mask_token < max(16, 0.5 * scored) or elsewhere:
                continue
            record.tried += len(masked)
            share = _shares(batches)
            labels = sum(fact["masked"]["labels"] for fact in masked)
            if len(masked) >= 3 and share.get(0, 0.0) == 1.0 and labels == at_mask_token:
                record.falsify(
                    batches[0]["at"],
                    f"the mask token {min(tokens)} is at {at_mask_token} of {scored} scored positions, and is also the "
                    "label there: labels are taken from the masked input, so the model learns to copy the mask token",
                    "take the labels before the input is masked: labels = inputs.clone()",
                )


@claim("TR-PROBE-001", "no causal language model, whose labels are the next tokens of its input, was probed")
def no_token_sees_the_future(run: Run, record: Record) -> None:
    """A logit depends on the token that it predicts.

    In an autoencoder, which encodes a text as a whole, every logit depends on all tokens on purpose. Three cases rule
    out an autoencoder:

    1. Only some logits, directly before the changed tokens, change.
    2. All attentions and recurrent layers see both directions, so there is no causal decoder.
    3. All of them are causal, but a softmax of the attention runs over the queries, so that later tokens change the
       attention of earlier ones.

    Otherwise the finding is a hint.
    """
    for process, probe in _probes(run, record, "future"):
        if probe["offset"] != 1:
            continue
        record.tried += 1
        # `early`: the largest change of a logit before the changed tokens. `own`: the change of the last of these
        # logits, which predicts the first changed token.
        if probe["early"] <= VISIBLE or probe["own"] <= VISIBLE:
            continue
        kinds = [probe["attention"], probe["recurrent"]]
        full = sum(kind["full"] for kind in kinds)
        causal = sum(kind["causal"] for kind in kinds)
        if probe.get("over_queries") and causal and not full:
            record.falsify(
                probe["at"],
                f"{process.kinds.get(probe['model'])} sees the tokens it predicts: when the tokens from position "
                f"{probe['token']} on change, logits before this position change by {probe['early']:.2g} of their "
                f"standard deviation; all {causal} attentions or recurrent layers are causal, but "
                f"{probe['over_queries']} softmaxes of attention run over the queries (dim=-2)",
                "apply the softmax over the keys: softmax(scores, dim=-1)",
            )
            continue
        local = probe["local"] and probe["own"] > 10 * VISIBLE
        add = record.falsify if local or (full and not causal) else record.hint
        changed = f"the last {probe['reach']} logits" if local else "logits"
        add(
            probe["at"],
            f"{process.kinds.get(probe['model'])} sees the tokens it predicts: when the tokens from position "
            f"{probe['token']} on change, {changed} before this position change by {probe['early']:.2g} of their "
            f"standard deviation; {full} of {full + causal} attentions or recurrent layers see later tokens",
            "mask later positions (is_causal=True, or a lower triangular mask), and use no bidirectional layer",
        )


@claim("TR-PROBE-002", "no model whose padding is known was probed", premises=("TR-MASK-003",))
def padding_changes_nothing(run: Run, record: Record) -> None:
    """Outputs of real tokens depend on padding.

    Always a hint: convolutions and recurrent layers may read padding if the padding is the same in training and in use.
    """
    for process, probe in _probes(run, record, "padding"):
        record.tried += 1
        if probe["real"] > VISIBLE:
            record.hint(
                probe["at"],
                f"when the embeddings of padding change, the outputs of {process.kinds.get(probe['model'])} at real "
                f"tokens change by {probe['real']:.2g} of their standard deviation",
                "mask padding in attention and in means; use pack_padded_sequence for recurrent layers",
            )


@claim("TR-PROBE-003", "no model whose rows are known was probed", premises=("TR-LOSS-002",))
def rows_do_not_mix(run: Run, record: Record) -> None:
    """The output of a row depends on another row of the batch.

    Three cases falsify the claim:

    1. The model is a language model, whose labels show which axis is time. All other rows change, and the model does
       not route tokens to experts of limited capacity, and has no layer that takes the rows for one sequence on
       purpose, as a model of documents does whose rows are sentences. A layer that is called for every token, as a cell
       would be, has no such purpose.
    2. A layer takes the dimension of the rows for time, although the labels show that it is not time.
    3. A softmax inside the model runs over the rows, and each row has one label.

    Otherwise the finding is a hint: sets and contrastive models mix rows on purpose. Rows that an argument connects,
    such as the nodes of a graph, are not probed.
    """
    for process, probe in _probes(run, record, "rows"):
        record.tried += 1
        if probe["others"] <= VISIBLE:
            continue
        seen = (
            f"when row 0 of the batch changes, the outputs of {probe['changed_rows']} of {probe['rows'] - 1} other "
            f"rows of {process.kinds.get(probe['model'])} change by {probe['others']:.2g} of their standard deviation"
        )
        # Routing to experts of limited capacity mixes rows on purpose: `topk`, `sort` and the like were called.
        is_intended = probe["routed"] or probe.get("in_sequence")
        everywhere = probe["changed_rows"] == probe["rows"] - 1 and not is_intended
        if probe["rows_as_time"]:
            record.falsify(
                probe["at"],
                f"{seen}; {probe['rows_as_time']} gets [rows, time, features] but expects [time, rows, features]",
                "pass batch_first=True to the layer",
            )
        elif probe.get("softmax_over_rows"):
            record.falsify(
                probe["at"],
                f"{seen}; a softmax in the model runs over the first dimension, the rows",
                "apply the softmax over positions or features: softmax(scores, dim=1) or dim=-1",
            )
        else:
            add = record.falsify if probe["language"] and everywhere else record.hint
            add(probe["at"], seen, "reduce over positions or features, never over rows of the batch")


@claim("TR-PROBE-004", "no model with self-attention was probed")
def heads_are_parts_of_features(run: Run, record: Record) -> None:
    """Heads of attention are split off or merged by a view that mixes positions and features.

    The tensor has the shape of the heads of a self-attention, [B, H, T, D], before or after the view, and the shape
    [B, T, H * D] on the other side. A view keeps the order of the elements in memory, but these two shapes have their
    elements in different orders: T and H must be transposed as well.
    """
    for process, probe in _probes(run, record, "attention"):
        record.tried += sum(probe["attention"].values())
        for before, after in probe.get("mixed_heads", ())[:1]:
            merges = len(before) > len(after)
            record.falsify(
                probe["at"],
                f"{process.kinds.get(probe['model'])} views a tensor of shape {before} as {after}, where attention has "
                f"{(before if merges else after)[-3]} heads: without a transpose, features of different positions are "
                "mixed",
                f"write {'x.transpose(1, 2).reshape(B, T, H * D)' if merges else 'x.view(B, T, H, D).transpose(1, 2)'}",
            )
