"""Mistakes as edits of the correct scripts: one at least for every claim that can be falsified.

An edit is (script, old text, new text, ...), with pairs of texts; all of them must be in the script.
"""

EDITS: dict[str, tuple[tuple[str, ...], ...]] = {
    "TR-GRAD-001": (
        ("classifier", "        optimizer.zero_grad()\n", ""),
        ("gan", "        optimizer_d.zero_grad()\n", ""),
        ("language_model", "optimizer.zero_grad(set_to_none=True)", "step % 2 or optimizer.zero_grad()"),
    ),
    "TR-GRAD-002": (
        ("classifier", "        optimizer.step()\n", "        optimizer.step()\n        optimizer.step()\n"),
    ),
    "TR-GRAD-003": (
        (
            "distillation",
            "        optimizer.zero_grad()\n        loss.backward()\n",
            "        loss.backward()\n        optimizer.zero_grad()\n",
        ),
    ),
    "TR-NAN-001": (
        (
            "reinforce",
            "returns = (returns - returns.mean())",
            "returns = (returns - returns.mean()) / float(episode != 4)",
        ),
        ("first_batch_skipped", "    if torch.isfinite(loss):\n        optimizer.step()", "    optimizer.step()"),
    ),
    "TR-WEIGHT-001": (
        ("ema_checkpointing", 'reduction="sum") / total', "ignore_index=-100) / len(window)"),
        ("cross_entropy_by_hand", "(loss / tokens).backward()", "(loss / labels.numel() / 2).backward()"),
    ),
    "TR-WEIGHT-002": (("grad_scaler", "target) / size", "target) / ACCUMULATE"),),
    "TR-CLIP-001": (
        (
            "language_model",
            "(loss / ACCUMULATE).backward()",
            "(loss / ACCUMULATE).backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 0.05)",
        ),
        (
            "truncated_bptt",
            "        nn.utils.clip_grad_norm_(net.parameters(), 0.25)\n        optimizer.step()\n",
            "        optimizer.step()\n        nn.utils.clip_grad_norm_(net.parameters(), 0.25)\n",
        ),
    ),
    "TR-CLIP-002": (
        ("grad_scaler", "            scaler.unscale_(optimizer)\n", ""),
        ("two_scalers", "        scaler.unscale_(optimizer)\n", ""),
    ),
    "TR-CLIP-003": (
        (
            "ppo",
            "optimizer = torch.optim.Adam(net.parameters()",
            "parameters = net.parameters()\noptimizer = torch.optim.Adam(parameters",
            "clip_grad_norm_(net.parameters(), 0.5)",
            "clip_grad_norm_(parameters, 0.5)",
        ),
    ),
    "TR-SCALE-001": (
        (
            "scale_by_hand",
            "    for p in net.parameters():\n        p.grad.div_(scaler.get_scale())\n"
            "    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.2)\n",
            "    norm = torch.ones(())\n",
        ),
    ),
    "TR-PARAM-001": (
        ("classifier", "scheduler = torch", "net[4] = nn.Linear(24, 3)\nscheduler = torch"),
        ("low_rank_adapters", "for step in", "net[0].a = nn.Parameter(net[0].a.detach().clone())\nfor step in"),
    ),
    "TR-PARAM-004": (
        (
            "block_coordinate",
            '            p.add_(p.grad, alpha=-group["lr"])',
            '            p.reshape(-1).add_(p.grad.reshape(-1), alpha=-group["lr"])',
            "every=100",
            "every=1",
            'optimizer = BlockSGD([{"params": layer.parameters()} for layer in (net[0], net[2])]',
            'net[0].weight = nn.Parameter(torch.randn(6, 12).t())\noptimizer = BlockSGD([{"params": net.parameters()}]',
        ),
    ),
    "TR-PARAM-005": (
        ("two_phases", "        optimizer.zero_grad()", "        optimizer.zero_grad(set_to_none=False)"),
    ),
    "TR-RATE-001": (
        (
            "distillation",
            "TEMPERATURE = 2.0",
            "TEMPERATURE = 2.0\noptimizer = torch.optim.Adam(student.parameters(), lr=1e-2)",
        ),
    ),
    "TR-RATE-002": (
        ("distillation", "        schedule.step()\n", ""),
        ("seq2seq_label_smoothing", "        schedule.step()\n", ""),
    ),
    "TR-RATE-003": (
        ("explicit_epochs", "schedule.step(epoch)", "schedule.step()"),
        (
            "distillation",
            "        optimizer.step()\n        schedule.step()\n",
            "        schedule.step()\n        optimizer.step()\n",
        ),
    ),
    "TR-RATE-004": (
        (
            "stopped_early",
            "            schedule.step()\n",
            "",
            "(F.cross_entropy(net(inputs), labels) / 2).backward()",
            "(F.cross_entropy(net(inputs), labels) / 2).backward()\n        schedule.step()",
            "    if epoch + 1 == STOP:  # as a validation loss that no longer falls would decide\n        break\n",
            "",
        ),
    ),
    "TR-RATE-005": (
        (
            "stopped_early",
            "T_max=EPOCHS * len(train) // 2",
            "T_max=EPOCHS * len(train)",
            "    with torch.no_grad():\n"
            "        print(sum(F.cross_entropy(net(inputs), labels).item() for inputs, labels in val) / len(val))\n"
            "    if epoch + 1 == STOP:  # as a validation loss that no longer falls would decide\n        break\n",
            "",
        ),
    ),
    "TR-MODE-001": (
        (
            "language_model",
            "    model.train()\n    return losses",
            "    return losses",
            "step % 5 == 0",
            "step % 5 == 2",
        ),
        ("classifier", "    net.train()\n", ""),
    ),
    "TR-MODE-002": (
        ("classifier", "    net.eval()\n", ""),
        ("seq2seq_label_smoothing", "    net.eval()\n", ""),
    ),
    "TR-LOSS-001": (
        ("classifier", "nn.Linear(24, 3))", "nn.Linear(24, 3), nn.Softmax(1))"),
        ("gan", "nn.Linear(16, 1))", "nn.Linear(16, 1), nn.Sigmoid())"),
    ),
    "TR-LOSS-002": (
        ("truncated_bptt", "F.log_softmax(self.head(out).view(-1, V), 1)", "self.head(out).view(-1, V)"),
        (
            "distillation",
            "F.softmax(teacher(inputs) / TEMPERATURE, -1)",
            "(teacher(inputs) / TEMPERATURE).log_softmax(-1)",
        ),
    ),
    "TR-LOSS-003": (("pairwise_values", "F.mse_loss(value, y)", "F.mse_loss(net(x), y)"),),
    "TR-LOAD-001": (("classifier", "copy.deepcopy(net.state_dict()), right", "net.state_dict(), right + 40 * epoch"),),
    "TR-LOAD-002": (
        (
            "prefix_fallback",
            "if len(result.missing_keys) == len(net.state_dict()):",
            "if len(result.missing_keys) == 0:",
        ),
    ),
    "TR-AGAINST-001": (("divided_rows", "seed(step)", "seed(step * args.micro)"),),
    "TR-AGAINST-002": (("divided_rows", "/ len(rows)", "/ len(part)"),),
    "TR-RESUME-001": (
        ("restarted", '    net.load_state_dict(state["model"])\n', ""),
        ("resume_in_epoch", '    net.load_state_dict(state["model"])\n', ""),
        (
            "resume_steps",
            'state = torch.load("ckpt.pt")',
            'state = torch.load("ckpt.pt")\n    state["model"].popitem()',
            "\n    net.load_state_dict({",
            "\n    net.load_state_dict(strict=False, state_dict={",
        ),
    ),
    "TR-RESUME-002": (
        ("resume_in_epoch", '    schedule.load_state_dict(state["schedule"])\n', ""),
        ("resume_steps", '["lr"] = rate(step)', '["lr"] = rate(step - begin)'),
        ("restarted", '    schedule.load_state_dict(state["schedule"])\n', ""),
        (
            "restarted",
            '    schedule.load_state_dict(state["schedule"])\n',
            "",
            '                "schedule": schedule.state_dict(),\n',
            "",
        ),
    ),
    "TR-RESUME-003": (
        ("resume_in_epoch", 'state["epoch"], state["batch"]', 'state["epoch"], 0'),
        ("resume_in_epoch", "sampler.skip = epoch, 8 * first_batch", "sampler.skip = epoch, first_batch"),
        (
            "resume_in_epoch",
            "manual_seed(self.epoch)",
            "manual_seed(self.epoch + 50 * bool(args.resume))",
            'state["batch"]',
            "0",
        ),
        ("resume_steps", 'state["average"], state["step"]', 'state["average"], state["step"] + 1'),
        ("restarted", 'state["epoch"], state["batch"]', 'state["epoch"], 0'),
    ),
    "TR-RESUME-004": (
        ("resume_in_epoch", '    scaler.load_state_dict(state["scaler"])\n', ""),
        ("restarted", '    scaler.load_state_dict(state["scaler"])\n', ""),
    ),
    "TR-RESUME-005": (
        ("resume_in_epoch", '    optimizer.load_state_dict(state["optimizer"])\n', ""),
        ("resume_other_order", '    optimizer.load_state_dict(state["optimizer"])\n', ""),
        ("resume_steps", '    optimizer.load_state_dict(state["optimizer"])\n', ""),
        ("restarted", '    optimizer.load_state_dict(state["optimizer"])\n', ""),
        (
            "restarted",
            '    optimizer.load_state_dict(state["optimizer"])\n'
            '    schedule.load_state_dict(state["schedule"])\n'
            '    scaler.load_state_dict(state["scaler"])\n',
            "",
            '    torch.set_rng_state(state["random"])\n',
            "",
        ),
    ),
    "TR-RESUME-007": (("resume_after_epoch", '"epoch": epoch + 1', '"epoch": epoch'),),
    "TR-RESUME-008": (
        (
            "resume_after_epoch",
            "(copy.deepcopy(net.state_dict()), loss, 0) if loss < best_loss else (best, best_loss, bad + 1)",
            "(best, best_loss, 0) if best else (copy.deepcopy(net.state_dict()), loss, 0)",
            'state["epoch"], state["best"]',
            'state["epoch"], None',
        ),
    ),
    "TR-RESUME-009": (
        (
            "resume_in_epoch",
            'torch.save(state, Path(args.out, "new.pt"))',
            'torch.save(state, Path(args.out, "last.pt"))',
            '            Path(args.out, "new.pt").replace(Path(args.out, "last.pt"))\n',
            "",
        ),
    ),
    "TR-LOAD-003": (
        (
            "pretrained_tied",
            "layer.weight.mul_(layer.weight.abs() > layer.weight.abs().median())",
            "layer.weight.view(-1)[300:] = 0",
        ),
        (
            "pretrained_tied",
            "net.body[2].reset_parameters()",
            'net.apply(lambda part: hasattr(part, "reset_parameters") and part.reset_parameters())',
        ),
    ),
    "TR-LOAD-004": (("pretrained_tied", "assign=True)\nnet.tie()", "assign=True)"),),
    "TR-RANK-001": (
        ("ddp_two_ranks", "nullcontext() if last else", "nullcontext() if not last else"),
        ("ddp_two_ranks", "scores = net(inputs)", "scores = net.module(inputs)"),
        ("averaged_by_hand", "    dist.broadcast(p.data, 0)", "    p.data += 0.01 * rank"),
    ),
    "TR-RANK-002": (
        ("ddp_two_ranks", "num_replicas=world, rank=rank)", "num_replicas=world, rank=0)"),
        ("sharded_optimizer", "torch.manual_seed(rank)", "torch.manual_seed(7)"),
    ),
}
