"""Mistakes as edits of the correct scripts: one at least for every claim that can be falsified.

An edit is (script, old text, new text, ...), with pairs of texts; all of them must be in the script.
"""

EDITS: dict[str, tuple[tuple[str, ...], ...]] = {
    "TR-GRAD-001": (
        ("carriers_and_documents", "    optimizer.zero_grad(set_to_none=False)\n", ""),
        ("masters_accumulated", "low.grad = None", "pass"),
        # After Adam, whose last gradients are left over.
        (
            "lbfgs_closures",
            "        optimizer.zero_grad()\n",
            "        optimizer is first or optimizer.zero_grad()\n",
            "for _ in range(4):\n    first.step(closure(first))\n",
            "",
            "    second.step(closure(second))\n",
            "    second.step(closure(second))\nfor _ in range(4):\n    first.step(closure(first))\n",
        ),
        ("master_weights", "    net.zero_grad()\n", ""),
        ("master_weights", "net.zero_grad()", "optimizer.zero_grad()"),
        ("classifier", "        optimizer.zero_grad()\n", ""),
        ("gan", "        optimizer_d.zero_grad()\n", ""),
        ("language_model", "optimizer.zero_grad(set_to_none=True)", "step % 2 or optimizer.zero_grad()"),
        ("updates_by_statements", "            p.grad = None\n", ""),
        ("optimizer_without_base", "        self.optimizer.zero_grad()\n", ""),
    ),
    "TR-GRAD-002": (
        ("classifier", "        optimizer.step()\n", "        optimizer.step()\n        optimizer.step()\n"),
    ),
    "TR-GRAD-003": (
        ("classifier", "labels).backward()", "labels).detach().requires_grad_().backward()"),
        (
            "distillation",
            "        optimizer.zero_grad()\n        loss.backward()\n",
            "        loss.backward()\n        optimizer.zero_grad()\n",
        ),
    ),
    "TR-GRAD-004": (
        (
            "clip_measures_norm",
            "        x = torch.randn(8, 6)\n",
            "        optimizer.zero_grad()\n        x = torch.randn(8, 6)\n",
        ),
        ("last_micro_batches", " or i + 1 == len(loader)", ""),
    ),
    "TR-GRAD-005": (
        (
            "gan",
            "criterion(D(fake.detach()), torch.zeros(n, 1)).backward()",
            "criterion(D(fake), torch.zeros(n, 1)).backward(retain_graph=True)",
            "        optimizer_g.zero_grad()\n",
            "",
            "        optimizer_d.zero_grad()\n",
            "        optimizer_d.zero_grad()\n        optimizer_g.zero_grad()\n",
        ),
        (
            "gan_without_detach",
            "        optimizer_generator.zero_grad()\n",
            "",
            "    optimizer_critic.zero_grad()\n",
            "    optimizer_critic.zero_grad()\n    optimizer_generator.zero_grad()\n",
        ),
    ),
    "TR-GRAD-006": (
        ("samples_of_distributions", "z = posterior.rsample()", "z = posterior.sample()"),
        (
            "samples_of_distributions",
            "policy.log_prob(action).sum(1, keepdim=True) * (reward - baseline.detach())",
            "policy.mean.square().sum(1, keepdim=True) - baseline",
        ),
    ),
    "TR-GRAD-007": (
        (
            "same_windows",
            "            (loss / scored).backward()\n        optimizer.step()",
            "        (loss / scored).backward()\n        optimizer.step()",
        ),
        ("losses_and_looks", "total = total + loss / 3", "total = loss / 3"),
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
        ("same_windows", ', reduction="sum")', ")", "loss / scored", "loss / len(window)"),
        ("ema_checkpointing", 'reduction="sum") / total', "ignore_index=-100) / len(window)"),
        ("cross_entropy_by_hand", "(loss / tokens).backward()", "(loss / labels.numel() / 2).backward()"),
        ("fused_head", " / count).backward()", " / (y != -100).sum() / ACCUMULATE).backward()"),
        (
            "fused_head",
            "labels.flatten(), 0.0)",
            "labels.flatten(), 0.1)",
            " / count).backward()",
            " / (y != -100).sum() / ACCUMULATE).backward()",
        ),
        ("loss_inside_model", " / count).backward()", " / (y != -100).sum() / ACCUMULATE).backward()"),
    ),
    "TR-WEIGHT-003": (
        (
            "accelerate_accumulates",
            "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)",
            "net, loader = accelerator.prepare(net, loader)",
        ),
        (
            "accelerate_accumulates",
            "torch.randn(90, 6)",
            "torch.randn(80, 6)",  # with a short last window
            "accelerator.backward(F.cross_entropy(net(inputs), labels))",
            "F.cross_entropy(net(inputs), labels).backward()",
        ),
    ),
    "TR-WEIGHT-002": (
        ("grad_scaler", "target) / size", "target) / ACCUMULATE"),
        ("accelerate_accumulates", "torch.randn(90, 6)", "torch.randn(80, 6)"),  # with a short last window
        (
            "last_micro_batches",
            " or i + 1 == len(loader)",
            "",
            "    optimizer.zero_grad()\n    for",
            "    for",
            "min(3, len(loader) - i // 3 * 3)",
            "3",
        ),
    ),
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
    "TR-CLIP-004": (("flat_shards", "net.clip_grad_norm_(0.1)", "nn.utils.clip_grad_norm_(net.parameters(), 0.1)"),),
    "TR-WEIGHT-007": (
        (
            "averaged_by_hand",
            "for step in range(8):\n",
            "\n\ndef average_gradients():\n    for p in net.parameters():\n        dist.all_reduce(p.grad)\n\n\n"
            "for step in range(8):\n",
            "    for p in net.parameters():\n        dist.all_reduce(p.grad)\n        p.grad /= world\n    opt",
            "    average_gradients()\n    opt",
        ),
        ("averaged_over_ranks", "    flat /= world\n", ""),
        ("averaged_over_ranks", "    flat /= world\n", "", "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n", ""),
    ),
    "TR-CLIP-003": (
        (
            "gan",
            "        optimizer_d.step()\n",
            "        nn.utils.clip_grad_norm_(G.parameters(), 0.1)\n        optimizer_d.step()\n",
        ),
        (
            "truncated_bptt",
            "nn.utils.clip_grad_norm_(net.parameters(), 0.25)",
            "nn.utils.clip_grad_norm_(copy.deepcopy(net).parameters(), 0.25)",
            "import torch\n",
            "import copy\nimport torch\n",
        ),
        (
            "horizon_in_epochs",
            "        optimizer.zero_grad()\n",
            "        optimizer.zero_grad()\n        nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n",
        ),
        (
            "ppo",
            "optimizer = torch.optim.Adam(net.parameters()",
            "parameters = net.parameters()\noptimizer = torch.optim.Adam(parameters",
            "clip_grad_norm_(net.parameters(), 0.5)",
            "clip_grad_norm_(parameters, 0.5)",
        ),
        (
            "ppo",
            "optimizer = torch.optim.Adam(net.parameters()",
            "parameters = filter(lambda p: p.requires_grad, net.parameters())\noptimizer = torch.optim.Adam(parameters",
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
        (
            "fully_sharded",
            "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)\n",
            "",
            "fully_shard(net",
            "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)\nfully_shard(net",
        ),
        ("classifier", "scheduler = torch", "net[4] = nn.Linear(24, 3)\nscheduler = torch"),
        (
            "low_rank_adapters",
            "net.requires_grad_(False)\nnet[0], net[2] = LowRank(net[0]), LowRank(net[2])\n",
            "net[0].requires_grad_(False)\n",
            "for step in",
            "net[0] = LowRank(net[0])\nfor step in",
        ),
        ("low_rank_adapters", "for step in", "net[0].a = nn.Parameter(net[0].a.detach().clone())\nfor step in"),
        (
            "flat_parameters",
            "net = Flat(net)\noptimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)\n",
            "optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)\nnet = Flat(net)\n",
        ),
        (
            "flat_parameters",
            "tagger[0] = nn.Embedding(12, 8)  # more tokens, before the optimizer is made\n",
            "",
            "for step in range(10):",
            "tagger[0] = nn.Embedding(12, 8)\nfor step in range(10):",
        ),
    ),
    "TR-PARAM-003": (("repeated_on_purpose", "nn.Linear(6, 6).requires_grad_(False)", "nn.Linear(6, 6)"),),
    "TR-PARAM-004": (
        (  # in bfloat16, without the master weights
            "master_weights",
            "torch.optim.SGD(masters, lr=0.1, momentum=0.9)",
            "torch.optim.AdamW(net.parameters(), lr=1e-6)",
            "        master.grad = p.grad.float()\n",
            "        pass\n",
            "            p.copy_(master)",
            "            pass",
        ),
        (
            "optimizer_without_base",
            "p.view(-1).sub_(buffer.view(-1), alpha=self.lr)",
            "p.contiguous().sub_(buffer, alpha=self.lr)",
            "trainer = Trainer(net)",
            "net[0].weight = nn.Parameter(torch.randn(8, 16).t())\ntrainer = Trainer(net)",
        ),
        (
            "block_coordinate",
            '            p.add_(p.grad, alpha=-group["lr"])',
            '            p.reshape(-1).add_(p.grad.reshape(-1), alpha=-group["lr"])',
            "every=100",
            "every=1",
            'optimizer = BlockSGD([{"params": layer.parameters()} for layer in (net[0], net[2])]',
            'net[0].weight = nn.Parameter(torch.randn(6, 12).t())\noptimizer = BlockSGD([{"params": net.parameters()}]',
        ),
        (  # the first steps of a warm-up have a rate of 0, and are not counted
            "block_coordinate",
            '            p.add_(p.grad, alpha=-group["lr"])',
            '            p.reshape(-1).add_(p.grad.reshape(-1), alpha=-group["lr"])',
            'optimizer = BlockSGD([{"params": layer.parameters()} for layer in (net[0], net[2])]',
            'net[0].weight = nn.Parameter(torch.randn(6, 12).t())\noptimizer = BlockSGD([{"params": net.parameters()}]',
            "for step in range(60):\n",
            "warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n // 2 / 10)\nfor step in range(20):\n",
            "    optimizer.step()\n",
            "    optimizer.step()\n    warm_up.step()\n",
        ),
    ),
    "TR-PARAM-005": (
        ("two_phases", "        optimizer.zero_grad()", "        optimizer.zero_grad(set_to_none=False)"),
    ),
    "TR-PARAM-006": (
        ("reentrant_checkpoint", "                h.requires_grad_(True)\n", "                pass\n"),
        (
            "reentrant_checkpoint",
            "            part.requires_grad_(False)\n",
            "            pass\n",
            "h + checkpoint(block, h, use_reentrant=True)",
            "self.run(block, h)",
            "    def forward(self, tokens):",
            "    @torch.no_grad()\n    def run(self, block, h):\n        return h + block(h)\n\n"
            "    def forward(self, tokens):",
            "            if number == FROZEN:\n                h.requires_grad_(True)\n",
            "",
        ),
        (
            "reentrant_checkpoint",
            "            part.requires_grad_(False)\n",
            "            pass\n",
            "            if number == FROZEN:\n                h.requires_grad_(True)\n"
            "            h = h + checkpoint(block, h, use_reentrant=True)",
            "            h = block(h.detach())",
        ),
    ),
    "TR-PARAM-007": (
        (
            "own_switch_of_training",
            "        self.norm.requires_grad_(False)\n",
            "",
        ),
        (
            "two_phases",
            "net[0].requires_grad_(False)\n\n",
            "for p in net[0].parameters():\n    p.require_grad = False\n\n",
            "torch.optim.Adam(net[2].parameters(), lr=1e-2)",
            "torch.optim.Adam(net.parameters(), lr=1e-2)",
        ),
    ),
    "TR-PARAM-008": (
        ("low_rank_adapters", "        nn.init.normal_(self.a, std=0.1)\n", "        nn.init.zeros_(self.a)\n"),
        (
            "master_weights",
            "    with torch.no_grad():\n        for p, master in zip(net.parameters(), masters):\n"
            "            p.copy_(master)\n",
            "",
        ),
        ("master_weights", "min(1.0, step / 3)", "min(1.0, step // 100)"),
        (
            "own_switch_of_training",
            "for epoch in range(3):",
            "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step // 40)\nfor epoch in range(3):",
            "        optimizer.step()\n",
            "        optimizer.step()\n        schedule.step()\n",
        ),
    ),
    "TR-PARAM-010": (
        ("heads_of_tuned_models", "    net.head.requires_grad_(True)\n", ""),
        (
            "heads_of_tuned_models",
            "(fixed.parameters(), lr=1e-2)",
            "(norms(fixed), lr=1e-2)",
            "fixed.head.requires_grad_(False)",
            "tune(fixed)\nfixed.head.requires_grad_(False)",
        ),
    ),
    "TR-PARAM-011": (
        (
            "repeated_on_purpose",
            "optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)",
            "optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)\nfor layer in (whole[0], whole[3]):\n"
            "    nn.init.constant_(layer.weight, 0.1)",
        ),
    ),
    "TR-PARAM-012": (
        (
            "language_by_hand",
            "self.head.weight = self.embed.weight",
            "self.head.weight.data = self.embed.weight.data",
        ),
        (
            "language_by_hand",
            "self.head.weight = self.embed.weight",
            "self.tie_weights()",
            "    def forward(self, tokens, labels):\n",
            "    def tie_weights(self):\n        self.head.weight.data.copy_(self.embed.weight.data)\n\n"
            "    def forward(self, tokens, labels):\n",
        ),
    ),
    "TR-PARAM-009": (
        (
            "restarted_after_epoch",
            "--stop 2 | --resume",
            "--stop 4",
            "    for inputs",
            "    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)\n    for inputs",
            "1e-2 * (count + 1) / 30",
            "1e-2",
        ),
        ("optimizers_anew", "torch.optim.SGD(net.parameters(), lr=0.1)", "torch.optim.AdamW(net.parameters(), lr=0.1)"),
        ("optimizers_anew", "torch.optim.SGD(net.parameters(), lr=0.1)", "torch.optim.SGD(net.parameters(), 0.1, 0.9)"),
    ),
    "TR-PRECISION-001": (
        (
            "autocast_opt_out",
            "nn.Linear(8, 32) for",
            "Precise(8, 32) for",
            "self.mix, self.head = nn.Linear(32, 32), Precise(32, 3)",
            "self.mix, self.head = Precise(32, 32), nn.Linear(32, 3)",
        ),
        (
            "autocast_opt_out",
            "net = Net()\n",
            "net = Net()\nplain = F.linear\nF.linear = lambda x, *rest: plain(x.float(), *rest).float()\n",
        ),
    ),
    "TR-RATE-001": (
        (
            "distillation",
            "TEMPERATURE = 2.0",
            "TEMPERATURE = 2.0\noptimizer = torch.optim.Adam(student.parameters(), lr=1e-2)",
        ),
    ),
    "TR-RATE-002": (
        (
            "horizon_in_epochs",
            "    schedule.step()\n",
            "    schedule.step(F.cross_entropy(net(x), x[:, :3].argmax(1)).item())\n",
            "epoch == 2",
            "epoch == 4",
        ),
        ("distillation", "        schedule.step()\n", ""),
        (
            "distillation",
            "        schedule.step()\n",
            "        try:\n            schedule.step(metrics=loss)\n        except TypeError:\n            pass\n",
        ),
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
        ("schedules_by_step", "CosineAnnealingLR(o, T_max=STEPS)", "CosineAnnealingLR(o, T_max=EPOCHS)"),
        ("schedules_by_step", "CosineAnnealingLR(o, STEPS - 2)", "CosineAnnealingLR(o, EPOCHS - 2)"),
        ("schedules_by_step", "MultiStepLR(o, [2, STEPS // 2], gamma=0.3)", "MultiStepLR(o, [1, 2], gamma=0.3)"),
        ("schedules_by_step", "PolynomialLR(o, STEPS)", "PolynomialLR(o, EPOCHS)"),
        ("schedules_by_step", "step_size=len(loader), gamma=0.5", "step_size=2, gamma=0.2"),
        (
            "horizon_in_epochs",
            "T_max=12",
            "T_max=4",
            "    schedule.step()\n    with",
            "    with",
            "        optimizer.step()\n",
            "        optimizer.step()\n        schedule.step()\n",
            "epoch == 2",
            "epoch == 3",
        ),
        ("clipped_parts", "        schedule.step()\n", "", "    shown =", "    schedule.step()\n    shown ="),
        (
            "lambda_schedule",
            "            schedule.step()\n",
            "",
            "        net.eval()",
            "        schedule.step()\n        net.eval()",
        ),
        (
            "lambda_schedule",
            "warm, total = 2, EPOCHS * len(loader)",
            "warm, total = 0, EPOCHS",
            "(step + 1) / warm",
            "1",
        ),
        (
            "lambda_schedule",
            "    for _ in range(EPOCHS):\n",
            "    for _ in range(EPOCHS):\n        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)\n",
        ),
        (
            "lambda_schedule",
            "    for _ in range(EPOCHS):\n",
            "    for _ in range(EPOCHS):\n"
            "        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)\n",
        ),
        (
            "distillation",
            "        schedule.step()\nprint",
            "    schedule.step()\nprint",
            "schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(loader))",
            "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, 3 * len(loader))",
        ),
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
    "TR-RATE-006": (
        ("plateaus", '(("max", "accuracy")', '(("min", "accuracy")'),
        ("plateaus", '("min", "loss")', '("max", "loss")'),
        ("plateaus", '("max", "f1")', '("min", "f1")'),
    ),
    "TR-RATE-007": (
        (
            "rates_by_hand",
            '[: 1 if kind == "slow" else None]',
            '[: 1 if kind in ("all", "slow") else None]',
        ),
        ("rates_by_hand", 'group.get("learning_rate", 0.02)', "0.02"),
    ),
    "TR-MODE-001": (
        (  # eval() is called for every batch of the evaluation
            "classifier",
            "    net.train()\n",
            "",
            "        for inputs, labels in val:\n",
            "        for inputs, labels in val:\n            net.eval()\n",
        ),
        (
            "language_model",
            "    model.train()\n    return losses",
            "    return losses",
            "step % 5 == 0",
            "step % 5 == 2",
        ),
        ("classifier", "    net.train()\n", ""),
        (
            "eval_mode_on_purpose",
            "    net(torch.randn(64, 6))  # statistics, in place of a pretraining\n",
            "    pass\n",
        ),
    ),
    "TR-MODE-002": (
        ("classifier", "    net.eval()\n", ""),
        ("seq2seq_label_smoothing", "    net.eval()\n", ""),
        ("language_model", "    model.eval()\n", ""),
        (
            "statistics_adapt",
            "    net.eval()\n    with torch.no_grad():\n        print(epoch",
            "    with torch.no_grad():\n        print(epoch",
            'net.eval()\nwith torch.no_grad():\n    print("adapted',
            'with torch.no_grad():\n    print("adapted',
            "net.train()  # the",
            "# the",
            "    for inputs, _ in target:\n        net(inputs)\n",
            "    pass\n",
        ),
    ),
    "TR-MODE-003": (
        ("dropout_in_eval_mode", "F.dropout(h, 0.1, training=True)", "F.dropout(h, 0.1)"),
        ("sparse_graph", "0.2, self.training)", "0.2)"),
        (
            "dropout_in_eval_mode",
            "self.body, self.out = nn.Linear(6, 16), nn.Linear(16, 6)",
            "self.body, self.out, self.drops = nn.Linear(6, 16), nn.Linear(16, 6), [nn.Dropout(0.1)]",
            "F.dropout(h, 0.1, training=True)",
            "self.drops[0](h)",
        ),
        (
            "dropout_in_eval_mode",
            "self.body, self.out = nn.Linear(6, 16), nn.Linear(16, 6)",
            "self.body, self.out, self.norms = nn.Linear(6, 16), nn.Linear(16, 6), [nn.BatchNorm1d(16, affine=False)]",
            "F.dropout(h, 0.1, training=True)",
            "self.norms[0](h)",
        ),
    ),
    "TR-MODE-004": (("statistics_adapt", 'with torch.no_grad():\n    print("features", body(x).mean().item())\n', ""),),
    "TR-MODE-005": (
        ("distillation", "teacher.eval()\n", ""),
        ("noisy_teachers", "noisy.train()\n", ""),
    ),
    "TR-MODE-006": (("frozen_by_modes", "stem.train()\n", ""),),
    "TR-NORM-001": (
        (
            "shared_towers",
            "self.trunk(self.near(x)) + self.trunk(self.far(10 * x) + 5)",
            "self.norm(self.cell(10 * self.norm(self.near(x))) + 5)",
        ),
    ),
    "TR-NORM-002": (
        ("spectral_norm", "with torch.no_grad():\n    critic(torch.randn(32, 4))  # estimates the norms\n", ""),
    ),
    "TR-NORM-003": (
        ("repeated_on_purpose", "eps=1e-3, momentum=0.1", "eps=0.9, momentum=0.1"),
        ("repeated_on_purpose", "eps=1e-3, momentum=0.1", "momentum=0.99"),
    ),
    "TR-AVG-001": (
        ("weight_averaging", "        average.update_parameters(net)\n", "", "update_bn(loader, average)\n", ""),
        (
            "average_of_a_copy",
            "    optimizer.step()\n    update(average, net)",
            "    update(average, net)\n    optimizer.step()",
        ),
    ),
    "TR-AVG-004": (
        ("contrastive_momentum", "k.mul_(0.9).add_(p, alpha=0.1)", "k.mul_(0.1).add_(p, alpha=0.9)"),
        ("contrastive_momentum", "k.mul_(0.9).add_(p, alpha=0.1)", "k.lerp_(p, (1 + step) / (6 + step))"),
    ),
    "TR-AVG-005": (("rounded_average", "s.copy_(a)", "s.lerp_(p.bfloat16(), 0.01)"),),
    "TR-AVG-003": (
        ("average_of_a_copy", "    for a, b in zip(copied.buffers(), model.buffers()):\n        a.copy_(b)\n", ""),
        (
            "targets_with_statistics",
            "shadow.load_state_dict(mixed)",
            "shadow.load_state_dict(mixed, strict=False)",
            "net.state_dict().items()}",
            "net.named_parameters()}",
        ),
    ),
    "TR-AVG-002": (("weight_averaging", "update_bn(loader, average)\n", ""),),
    "TR-LOSS-001": (
        ("classifier", "nn.Linear(24, 3))", "nn.Linear(24, 3), nn.ReLU())"),
        ("cross_entropy_by_hand", "logits.log_softmax(-1)", "logits.softmax(-1).log_softmax(-1)"),
        ("classifier", "nn.Linear(24, 3))", "nn.Linear(24, 3), nn.Softmax(1))"),
        ("classifier", "nn.Linear(24, 3))", "nn.Linear(24, 3), nn.Sigmoid())"),
        (
            "gan",
            "nn.Linear(16, 1))",
            "nn.Linear(16, 1), nn.Sigmoid(), nn.Sigmoid())",
            "criterion = nn.BCEWithLogitsLoss()",
            "criterion = nn.BCELoss()",
        ),
        ("gan", "nn.Linear(16, 1))", "nn.Linear(16, 1), nn.Sigmoid())"),
    ),
    "TR-LOSS-002": (
        (
            "distillation",
            "F.softmax(teacher(inputs) / TEMPERATURE, -1)",
            "F.softmax(teacher(inputs) / TEMPERATURE, 0)",
            "F.log_softmax(scores / TEMPERATURE, -1)",
            "F.log_softmax(scores / TEMPERATURE, 0)",
        ),
        ("unusual_targets", "hidden.view(4, 4, 12).log_softmax(-1)", "hidden.view(4, 4, 12).log_softmax(1)"),
        ("truncated_bptt", "F.log_softmax(self.head(out).view(-1, V), 1)", "self.head(out).view(-1, V)"),
        (
            "distillation",
            "F.softmax(teacher(inputs) / TEMPERATURE, -1)",
            "(teacher(inputs) / TEMPERATURE).log_softmax(-1)",
        ),
        ("truncated_bptt", "F.log_softmax(self.head(out).view(-1, V), 1)", "self.head(out).view(-1, V).log_softmax(0)"),
        ("unusual_targets", "hidden.view(4, 4, 12).log_softmax(-1)", "hidden.view(4, 4, 12)"),
    ),
    "TR-LOSS-003": (
        ("pairwise_values", "F.mse_loss(value, y)", "F.mse_loss(net(x), y)"),
        ("repeated_on_purpose", "prediction = net(x).squeeze(-1)", "prediction = net(x)"),
        ("repeated_on_purpose", "error = prediction - y", "error = y[:, None] - prediction"),
        (
            "repeated_on_purpose",
            "prediction = net(x).squeeze(-1)",
            "prediction = net(x)",
            "(error**2).mean()",
            "(error + F.softplus(-2 * error) - 0.7).mean()",
        ),
    ),
    "TR-LOSS-004": (
        ("unusual_targets", "signs = 2 * labels[rows] - 1", "signs = labels[rows]"),
        ("unusual_targets", "noisy = labels[rows] *", "noisy = 255 * labels[rows] *"),
        ("unusual_targets", "(score(hidden)[:, 0], noisy)", "(labels[rows], score(hidden)[:, 0].sigmoid())"),
    ),
    "TR-LOSS-005": (
        ("maps_and_bags", "scores.permute(0, 2, 3, 1).reshape(-1, 3)", "scores.reshape(-1, 3)"),
        ("flattened_taggers", "channels.permute(0, 2, 1).reshape(-1, C)", "channels.reshape(-1, C)"),
        ("flattened_taggers", "tags.t().reshape(-1)", "tags.reshape(-1)"),
        ("flattened_taggers", "head(vectors).transpose(1, 2)", "head(vectors).view(N, C, T)"),
    ),
    "TR-LOSS-007": (
        (
            "wgan_gradient_penalty",
            "        mix = torch.rand(16, 1)\n",
            "        gap = C(fake).mean() - C(real).mean()\n        mix = torch.rand(16, 1)\n",
            "C(fake).mean() - C(real).mean() + 10",
            "gap + 10",
            "create_graph=True",
            "retain_graph=True",
        ),
        ("flattened_taggers", " + several +", " + 0.5 * several.item() +"),
        ("terms_of_losses", "+ 0.5 * error - 0.1", "+ 0.5 * error.detach()", "step % 3 == 0", "step >= 0"),
        (
            "terms_of_losses",
            "+ 0.5 * error - 0.1",
            "+ 0.1 * hidden.square().mean().item()",
            "step % 3 == 0",
            "step >= 0",
        ),
    ),
    "TR-LOSS-008": (
        ("unusual_targets", "(1 if step else 2,) * 4", "(2,) * 4"),
        (
            "unusual_targets",
            "torch.tensor([[3, 0 if step else 5]] * 4)",
            "torch.tensor([3, 0, 3, 4])",
            "(1 if step else 2,) * 4",
            "(1,) * 4",
        ),
    ),
    "TR-SHIFT-001": (
        ("language_by_hand", "logits[:, :-1].log_softmax(-1), labels[:, 1:]", "logits.log_softmax(-1), labels"),
        (
            "language_model",
            "F.cross_entropy(logits.view(-1, V), y.view(-1))",
            "F.cross_entropy(logits[:, :-1].reshape(-1, V), y[:, 1:].reshape(-1))",
        ),
        (
            "ends_and_padding",
            "scores[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1)",
            "scores.reshape(-1, V), labels.reshape(-1)",
        ),
        (
            "transformers_trainer",
            "ids.masked_fill(mask == 0, -100)}",
            "torch.cat([ids.masked_fill(mask == 0, -100)[:, 1:], torch.full((len(ids), 1), -100)], 1)}",
        ),
    ),
    "TR-MASK-001": (
        (
            "masked_language_model",
            "    loss = loss + (tagged * mask.reshape(-1)).sum() / mask.sum()",
            "    loss = loss + tagged.mean()",
        ),
        (
            "ends_and_padding",
            "torch.full((6, width), END)",
            "torch.zeros((6, width), dtype=torch.long)",
            "labels = ids.masked_fill(mask == 0, -100)",
            "labels = ids",
        ),
        ("seq2seq_padded", "ignore_index=PAD, ", ""),
        (
            "transformers_trainer",
            "bos_token_id=0, eos_token_id=0",
            "pad_token_id=0, bos_token_id=1, eos_token_id=1",
            "ids.masked_fill(mask == 0, -100)",
            "ids.clone()",
        ),
    ),
    "TR-MASK-002": (
        ("ends_and_padding", "ids.masked_fill(mask == 0, -100)", "ids.masked_fill(ids == END, -100)"),
        (
            "ends_and_padding",
            "ids.masked_fill(mask == 0, -100)",
            "ids.masked_fill(ids == END, -100)",
            "if step % 2 else slice(0, len(text))",
            "if step < 0 else slice(0, len(text))",
            "net(input_ids=ids, attention_mask=mask)",
            "net(ids, torch.ones_like(mask))",
        ),
    ),
    "TR-MASK-003": (
        ("masked_language_model", "src_key_padding_mask=~mask", "src_key_padding_mask=mask.float()"),
        ("masked_language_model", "h = self.layers(h, src_key_padding_mask=~mask)", "h = self.layers(h)"),
        (
            "masked_language_model",
            "src_key_padding_mask=~mask",
            "src_key_padding_mask=mask",
            "(5, 13 + step % 3, (8,))",
            "(5, 13 + step % 3, (8,)).clamp(max=11)",
            "int(lengths.max())",
            "12",
        ),
    ),
    "TR-MASK-004": (
        (
            "masked_language_model",
            "    scores, tag_scores = net(inputs, mask)",
            "    labels = inputs.masked_fill(~chosen, -100)\n    scores, tag_scores = net(inputs, mask)",
        ),
    ),
    "TR-PROBE-001": (
        ("language_model", "is_causal=True", "is_causal=False"),
        ("language_by_hand", "scores = scores.masked_fill(later", "scores.masked_fill(later"),
        ("language_by_hand", "dtype=torch.bool).triu(1)", "dtype=torch.bool).tril(-1)"),
        ("language_by_hand", "softmax(scores, dim=-1)", "softmax(scores, dim=-2)"),
        ("prefix_and_several_tokens", ".triu(1) &", ".triu(2) &"),
    ),
    "TR-PROBE-003": (
        ("language_model", "h = self.tokens(x) +", "h = self.tokens(x) + 0.1 * self.tokens(x).mean(0) +"),
        ("maps_and_bags", "softmax(self.weight(h), dim=1)", "softmax(self.weight(h), dim=0)"),
        (
            "recurrent_classifier",
            "self.mix = nn.LSTM(2 * WIDTH, WIDTH, batch_first=True)",
            "self.mix = nn.LSTM(2 * WIDTH, WIDTH)",
        ),
    ),
    "TR-PROBE-004": (
        (
            "language_by_hand",
            "(weights @ v).transpose(1, 2).reshape(rows, time, width)",
            "(weights @ v).reshape(rows, time, width)",
        ),
        (
            "language_by_hand",
            ".view(rows, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)",
            ".view(rows, 3, 2, time, width // 2).unbind(1)",
        ),
    ),
    "TR-LOAD-001": (
        (
            "restarted_after_epoch",
            "--stop 2 | --resume",
            "--stop 4",
            "    models =",
            "    if epoch in (0, 2):\n        kept = average.state_dict()\n    models =",
            'print("sum"',
            'average.load_state_dict(kept)\nprint("sum"',
        ),
        ("classifier", "    scheduler.step()\n", "    scheduler.step()\n    net.load_state_dict(net.state_dict())\n"),
        ("classifier", "copy.deepcopy(net.state_dict()), right", "net.state_dict(), right + 40 * epoch"),
        ("states_kept", "value.detach().clone()", "value.detach()"),
        (
            "states_kept",
            "{name: value.detach().clone() for name, value in net.state_dict().items()}",
            "net.state_dict()",
            "net.load_state_dict(best)\n",
            "",
            "twin.load_state_dict(live)",
            "twin.load_state_dict(best)",
            'torch.save(best, "best.pt")\n',
            "",
        ),
    ),
    "TR-SAVE-001": (
        (
            "states_kept",
            "{name: value.detach().clone() for name, value in net.state_dict().items()}",
            "dict(net.state_dict())",
            "net.load_state_dict(best)\n",
            "",
        ),
    ),
    "TR-SAVE-002": (
        ("parts_saved", 'torch.save(second.head, "head.pt")\n', ""),
        ("states_kept", '"scale": scale, ', ""),
    ),
    "TR-SAVE-003": (
        ("best_states", "value < best", "value > best"),
        (  # texts that the model can learn
            "transformers_trainer",
            "greater_is_better=False",
            "greater_is_better=True",
            "torch.randint(1, 24, (n,))",
            "torch.arange(1, n + 1)",
        ),
        ("library_metrics", 'monitor="val_acc", mode="max"', 'monitor="val_acc"'),
        ("library_metrics", 'monitor="val_loss", mode="min"', 'monitor="val_loss", mode="max"'),
    ),
    "TR-LOAD-002": (
        (
            "restarted_after_epoch",
            "net.state_dict()",
            "dict(net.named_parameters())",
            'net.load_state_dict(state["model"])',
            'net.load_state_dict(state["model"], strict=False)',
        ),
        ("states_kept", "if name[7:] in mine", "if name in mine"),
        ("parts_saved", 'f"encoder.{name}"', 'f"module.encoder.{name}"'),
        (
            "prefix_fallback",
            "if len(result.missing_keys) == len(net.state_dict()):",
            "if len(result.missing_keys) == 0:",
        ),
    ),
    "TR-AGAINST-001": (("divided_rows", "seed(step)", "seed(step * args.micro)"),),
    "TR-AGAINST-002": (("divided_rows", "/ len(rows)", "/ len(part)"),),
    "TR-RESUME-001": (
        ("restarted_after_epoch", '    average.load_state_dict(state["average"])\n', ""),
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
        ("restarted_after_epoch", 'first, count = state["epoch"], state["count"]', 'first = state["epoch"]'),
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
        ("restarted_after_epoch", '    torch.set_rng_state(state["random"])\n', ""),
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
            # The script keeps the first state since it has the smallest weights.
            "    best, best_loss, bad = (\n",
            "    print(f'size {sum(p.square().sum() for p in net.parameters()):.4f}')\n    best, best_loss, bad = (\n",
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
        ("tensor_parallel", "        p.grad *=", "        if rank == 0:\n            p.grad *="),
        (
            "tensor_parallel",
            "        total = gradient.clone()\n        dist.all_reduce(total)\n",
            "        total = gradient\n",
        ),
        (
            "averaged_over_ranks",
            "    dist.all_reduce(flat)\n    flat /= world\n",
            "",
            'print("sum"',
            'if rank == 0:\n    torch.save(net.state_dict(), "net.pt")\nprint("sum"',
        ),
        # Reduced in a copy, or to one rank; only rank 0 saves.
        *(
            (
                "averaged_over_ranks",
                "        p.grad.copy_(gradient.view_as(p))\n",
                copy,
                "dist.all_reduce(flat)",
                reduction,
                'print("sum"',
                'if rank == 0:\n    torch.save(net.state_dict(), "net.pt")\nprint("sum"',
            )
            for copy, reduction in (
                ("        gradient.copy_(gradient.view_as(p).flatten())\n", "dist.all_reduce(flat)"),
                ("        p.grad.copy_(gradient.view_as(p))\n", "dist.reduce(flat, 0)"),
            )
        ),
        ("ddp_two_ranks", "nullcontext() if last else", "nullcontext() if not last else"),
        ("ddp_two_ranks", "scores = net(inputs)", "scores = net.module(inputs)"),
        ("averaged_by_hand", "    dist.broadcast(p.data, 0)", "    p.data += 0.01 * rank"),
        # Optimizers whose numbers differ over ranks; a checkpoint that makes the ranks agree again.
        ("ddp_validated", "F.cross_entropy(net(inputs), labels) / 2", "F.cross_entropy(body(inputs), labels) / 2"),
        ("ddp_validated", 'body.load_state_dict(state["model"])', 'rank or body.load_state_dict(state["model"])'),
        (
            "ddp_validated",
            "            optimizer.step()\n            optimizer",
            "            optimizer.step()\n            "
            'optimizer.param_groups[0]["lr"] *= 1 - 0.1 * rank\n            optimizer',
        ),
        ("reduced_by_hand", "    dist.broadcast(tensor.data, 0)", "    tensor.data += 0.01 * rank"),
    ),
    "TR-RANK-003": (
        ("sharded_accumulation", "k == len(batches) - 1", "k == 0"),
        (
            "sharded_accumulation",
            "k == len(batches) - 1",
            "False",
            "clip_grad_norm_(net.parameters(), 0.5).full_tensor()",
            "get_total_norm(p.detach() for p in net.parameters())",
        ),
    ),
    "TR-RANK-002": (
        ("ddp_two_ranks", "num_replicas=world, rank=rank)", "num_replicas=world, rank=0)"),
        ("sharded_optimizer", "torch.manual_seed(rank)", "torch.manual_seed(7)"),
        ("averaged_by_hand", "torch.manual_seed(rank)", "torch.manual_seed(7)"),
        ("fully_sharded", "torch.manual_seed(rank)", "torch.manual_seed(7)"),
    ),
    "TR-EVAL-001": (
        (
            "reported_means",
            "total += loss.item() * size",
            "total += loss.item()",
            "return total / count",
            "return total / len(val)",
        ),
        ("reported_means", "right / count, bits", "right / len(val) / val.batch_size, bits"),
        (
            "reported_means",  # the file alone, and the perplexity
            "total += loss.item() * size",
            "total += loss.item()",
            "return total / count",
            "return math.exp(total / len(val))",
            "    print(f",
            "    str(f",
            "    logging.info(",
            "    str((",
            "best, bits)",
            "best, bits))",
            "table.writerow",
            "str",
        ),
        ("classifier", ".item() * len(labels)", "", "loss / 40", 'f"{loss / len(val):.4f}"'),
        ("reported_labels", "{right / count", "{right / (len(val) * 16 * 9)"),
    ),
    "TR-EVAL-006": (
        ("reported_means", "total / len(train)", "total / len(val)"),
        ("reported_means", "{total / len(train):.4f}", "{total / len(train.dataset):.6f}"),
        (
            "reported_means",
            "size = len(labels)",
            "size = 1",
            "return total / count, right",
            "return total / 30, right",
            "{100 * accuracy:.2f}",
            "{100 * accuracy:.0f}",
            "return total",
            "return total",
        ),
    ),
    "TR-EVAL-004": (
        ("maps_and_bags", "        running = 0.0\n", ""),
        ("library_metrics", "self.checked", "self.fitted"),
        (
            "library_metrics",
            'compute():.4f}")\n    accuracy.reset()\n    with',
            'compute():.4f}")\n    with',
            "teacher(inputs).softmax(1)",
            "labels[:, None] * torch.full((3,), 1 / 3)",
        ),
        (
            "reported_sums",
            "for epoch in range(4):\n    total = summed = by_rows = 0.0\n",
            "total = summed = by_rows = 0.0\nfor epoch in range(4):\n",
        ),
        (
            "classifier",
            "    right, loss = 0, 0.0\n",
            "",
            "for epoch in range(4)",
            "right, loss = 0, 0.0\nfor epoch in range(4)",
            "loss / 40,",
            "loss / (40 * epoch + 40),",
        ),
        (
            "reported_means",
            "    total = right = bits = count = 0\n    with",
            "    global total, count\n    right = bits = 0\n    with",
            "def evaluate",
            "total = count = 0\n\n\ndef evaluate",
            "    total = 0.0\n    for inputs",
            "    summed = 0.0\n    for inputs",
            "        total += loss.item()\n    value",
            "        summed += loss.item()\n    value",
            "{total / len(train)",
            "{summed / len(train)",
            "right / count, bits / count",
            "right / 30, bits / 30",
        ),
    ),
    "TR-EVAL-002": (
        (
            "classifier",
            "loss += criterion(scores, labels).item() * len(labels)",
            "loss = 40 * criterion(scores, labels)",
        ),
        (
            "reported_means",
            "total += loss.item() * size",
            "total = loss.item()",
            "return total / count",
            "return total",
            "so far {total / count:.4f}",
            "",
        ),
        ("reported_labels", "right += hits", "right = hits", "{right / count", "{right / labels.numel()"),
    ),
    "TR-LOG-001": (
        ("reported_steps", "loss {mean:.5f} last {loss.item() * ACCUMULATE:.5f}", "loss {loss.item():.5f}"),
        (
            "language_model",
            "        (loss / ACCUMULATE).backward()\n",
            "        loss = loss / ACCUMULATE\n        loss.backward()\n",
            "    optimizer.step()\n",
            "    optimizer.step()\n    print(loss)\n",
        ),
    ),
    "TR-DATA-001": (
        ("ddp_two_ranks", "    sampler.set_epoch(epoch)\n", ""),
        ("folds", "manual_seed(epoch)", "manual_seed(0)"),
        ("classifier", "    net.train()\n", "    net.train()\n    torch.manual_seed(0)\n"),
    ),
    "TR-DATA-002": (
        (
            "folds",
            "total = 0.0",
            "total = 0.0\nnet, optimizer = build()",
            "    net, optimizer = build()\n    t",
            "    t",
        ),
        ("classifier", "x[110:], y[110:]", "x[95:], y[95:]"),
    ),
    "TR-DATA-003": (
        ("noisy_workers", "random.seed(torch.initial_seed() % 2**32)", "random.seed(0)"),
        ("noisy_workers", "    get_worker_info().dataset.generator.manual_seed(torch.initial_seed())\n", ""),
        ("noisy_workers", "random.seed(torch.initial_seed() % 2**32)", "random.seed(worker)"),
    ),
    "TR-DATA-004": (("iterable_workers", "range(worker.id, 80, worker.num_workers)", "range(80)"),),
    "TR-DATA-005": (
        ("cached_examples", "[index] + 0.01 * torch.randn(6)", "[index].add_(0.01 * torch.randn(6))"),
        ("lazy_cache", "signal = signal + 0.1", "signal += 0.1"),
        ("masked_views", "x = x + 0.3 * torch.randn(6)", "x += 0.3 * torch.randn(6)"),
    ),
    "TR-DATA-006": (("cached_examples", "(data.weights, 48)", "(torch.ones(3), 48)"),),
    "TR-DATA-007": (("sorted_labels", "fit(data, epochs=3, shuffle=True)", "fit(data, epochs=3, shuffle=False)"),),
    "TR-DATA-008": (("ddp_two_ranks", "num_replicas=world, rank=rank", "num_replicas=2 * world, rank=rank"),),
    "TR-DATA-010": (
        (
            "iterable_workers",
            "for epoch in range(2):\n    for x, y in DataLoader(Stream(), batch_size=8, num_workers=2):",
            "loader = iter(DataLoader(Stream(), batch_size=8, num_workers=2))\nfor epoch in range(3):\n"
            "    for x, y in loader:",
        ),
    ),
    "TR-DATA-011": (
        (
            "normalized_images",
            "for inputs, labels in train:",
            "for _ in train:\n        inputs, labels = next(iter(train))",
            "shuffle=True",
            "shuffle=False",
        ),
    ),
    "TR-DATA-012": (("normalized_images", "Images(20, normalize)", "Images(20, None)"),),
    "TR-DATA-013": (("weighted_rows_trainer", "remove_unused_columns=False, ", ""),),
    "TR-DATA-014": (("repeated_on_purpose", "torch.manual_seed(step)", "torch.manual_seed(5)"),),
}
