"""transformers.Trainer: the losses that it logs and evaluates. No code of `pv`."""

from tiny import every_step, model, rows, token_mean, trainer

LOGGED = {"logging_strategy": "steps", "logging_steps": 3}


def losses(made):
    return [(row["step"], round(row["loss"], 6)) for row in made.state.log_history if "loss" in row]


def silent(order):
    """Return three rows in an order; row 0 has no labels."""
    made = rows(6)
    made[0]["labels"] = [-100] * len(made[0]["labels"])
    return [made[i] for i in order]


made = trainer(
    model(),
    rows(6),
    per_device_train_batch_size=1,
    max_steps=3,
    learning_rate=0.0,
    **LOGGED,
    train_sampling_strategy="sequential",
)
made.train()
print("5  loss of three steps", losses(made), "token mean", token_mean(model(), rows(3)))
for order in ([0, 3, 4], [3, 4, 0]):
    made = trainer(
        model(),
        silent(order),
        per_device_train_batch_size=1,
        max_steps=3,
        learning_rate=0.0,
        **LOGGED,
        train_sampling_strategy="sequential",
    )
    made.train()
    means = [token_mean(model(), [row]) for row in silent([3, 4])]
    print("6  rows", order, losses(made), "mean of the two losses", sum(means) / 2)
for size in (1, 2, 5):
    made = trainer(model(), rows(2), rows(5), per_device_eval_batch_size=size)
    print(
        "7  evaluated in batches of",
        size,
        made.evaluate()["eval_loss"],
        "token mean",
        token_mean(model().eval(), rows(5)),
    )
settings = {"max_steps": 6, "learning_rate": 0.1, **every_step("save"), **LOGGED}
straight = trainer(model(), rows(12), **settings)
straight.train()
again = trainer(model(), rows(12), **settings, output_dir=straight.args.output_dir)
again.train(resume_from_checkpoint=f"{straight.args.output_dir}/checkpoint-2")
print("13 not cut", losses(straight), "resumed after step 2", losses(again))
