"""The adapter of `transformers.Trainer`, its subclasses, and callbacks and collators for it."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
)
from transformers.modeling_outputs import CausalLMOutput

from pv.suites.training_loop.features import OldLacks, declared_features
from pv.suites.training_loop.job import Example, Job, Report
from pv.suites.training_loop.probe import VOCABULARY, Probe, token_loss

EXACT_TOLERANCE, CAST_TOLERANCE = 1e-6, 3e-5
"""Tolerances of gradients: for Trainer itself, which uses the loss of the model, and for losses cast to float32."""
_USER = "the feature is left to the user's code"
MISSING = {
    "groups": "rates by group are left to the code of the user, which passes an optimizer",
    **dict.fromkeys(("average", "network"), _USER),
    "finite": "its documentation mentions losses that are not finite only for logs",
    "decay": "the parameters without decay are found by the names of known layers",
    "scaler": "there is no gradient scaler on the CPU",
}
"""The features that Trainer does not have, with the reasons."""


class ProbeConfig(PreTrainedConfig):
    """The configuration of a model with the probe."""

    model_type = "probe"


class ProbeForCausalLM(PreTrainedModel):
    """The probe as a model of transformers.

    The loss is the mean over the scored tokens; if Trainer passes `num_items_in_batch`, the sum divided by this number.

    The name of the class must end with `ForCausalLM`: otherwise Trainer also counts the first label of each row.
    """

    config_class = ProbeConfig
    loss_of: Callable[..., Tensor] = staticmethod(token_loss)

    def __init__(self, config: ProbeConfig, probe: Probe) -> None:
        super().__init__(config)
        self.probe = probe
        self._tied_weights_keys = tied_names(probe, "probe")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: int | None = None,
        **_: object,
    ) -> CausalLMOutput:
        logits, loss = self.logits(input_ids, attention_mask), None
        if labels is not None and num_items_in_batch is None:
            loss = self.loss_of(logits, labels)
        elif labels is not None and num_items_in_batch is not None:
            loss = self.loss_of(logits, labels, reduction="sum") / num_items_in_batch
        return CausalLMOutput(loss=loss, logits=logits)

    def logits(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        logits: Tensor = self.probe(input_ids, attention_mask)
        return logits


class ProbeForSequenceClassification(ProbeForCausalLM):
    """The probe as a classifier: maps rows of one token to logits [B, V]; labels have the shape [B]."""

    loss_of = staticmethod(cross_entropy)

    def logits(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        return super().logits(input_ids, attention_mask)[:, 0]


def tied_names(probe: Probe, path: str) -> dict[str, str]:
    """Return the tied weights that a model declares for a probe at the attribute `path`; {} if no weights are tied."""
    return {f"{path}.head.weight": f"{path}.embed.weight"} if probe.head.weight is probe.embed.weight else {}


class Transformers:
    """Runs jobs with a subclass of `transformers.Trainer`.

    Args:
        trainer: Class or function that is called with the arguments of Trainer.
        settings: TrainingArguments that override the settings of the job.
        callbacks: Functions or classes without arguments; each run calls them to create its callbacks.
        collator: A collator of rows with `input_ids`, `attention_mask` and `labels`; None for the collator of the job.
        features: Features that differ from Trainer, as in the attribute `features`. Without `sequences`, the model is a
            classifier of rows of one token, whose `labels` is one number.
        without: Missing features, as version 0.2 named them; it will be removed in version 0.5.

    Warns:
        FutureWarning: `without` is used. The text says what to write.
    """

    features: Mapping[str, bool | str] = {**MISSING, "best_step": True, "ties": True}
    lacks = OldLacks()
    not_claimed: Mapping[str, str] = {}
    arguments: type[TrainingArguments] = TrainingArguments

    def __init__(
        self,
        trainer: Callable[..., Trainer] = Trainer,
        *,
        settings: Mapping[str, object] | None = None,
        callbacks: Iterable[Callable[[], TrainerCallback]] = (),
        collator: Callable[..., object] | None = None,
        features: Mapping[str, bool | str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self.trainer, self.settings = trainer, dict(settings or {})
        self.callbacks, self.collator = tuple(callbacks), collator
        self.tolerance = EXACT_TOLERANCE if trainer is Trainer else CAST_TOLERANCE
        replaced = dict.fromkeys(("noise", "padding"), "the collator itself is under attack") if collator else {}
        self.features = {**type(self).features, **replaced, **dict.fromkeys(without, False), **(features or {})}
        if without:
            parts = ", ".join(f'"{name}": False' for name in without)
            text = f"the argument `without` will be removed in version 0.5; write `features={{{parts}}}`"
            warnings.warn(text, FutureWarning, stacklevel=2)

    @property
    def classifies(self) -> bool:
        """Return whether an example has one label."""
        return declared_features(self).get("sequences", True) is not True

    def run(self, job: Job) -> Report:
        """Run a job with `Trainer.train`, and return its report."""
        report = Report(model=self.model(job))
        trainer = self.build(job, report, [*(make() for make in self.callbacks), Watch(job, report)])
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=str(job.resume) if job.resume else None)
        return _complete_report(job, report, trainer)

    def build(self, job: Job, report: Report, callbacks: list[TrainerCallback]) -> Trainer:
        """Return the trainer. Override this method for a trainer that takes other arguments."""
        return self.trainer(
            model=report.model,
            args=self.config(job),
            data_collator=self.collator or (default_data_collator if self.classifies else _collator(job)),
            train_dataset=self.rows(job.train),
            eval_dataset=self.rows(job.evaluated),
            callbacks=callbacks,
        )

    def config(self, job: Job) -> TrainingArguments:
        """Return the training arguments of a job."""
        return self.arguments(**_settings(job) | self.extra(job) | self.settings)

    def model(self, job: Job) -> PreTrainedModel:
        """Return the model with the probe in it."""
        kind = ProbeForSequenceClassification if self.classifies else ProbeForCausalLM
        return kind(ProbeConfig(vocab_size=VOCABULARY), job.model())

    def rows(self, examples: tuple[Example, ...]) -> object:
        """Return a dataset, or None if there are no examples."""
        if self.classifies:
            rows = (example.tokens for example in examples)
            return [{"input_ids": [name], "attention_mask": [1], "labels": label} for name, label in rows] or None
        return [row_of(example) | {"attention_mask": [1] * len(example.tokens)} for example in examples] or None

    def extra(self, job: Job) -> dict[str, object]:
        """Return further settings, which replace settings of the job. Subclasses override it, see `TRL`."""
        return {}


def row_of(example: Example) -> dict[str, list[int]]:
    """Return an example as a row of a dataset."""
    return {"input_ids": list(example.tokens), "labels": list(example.labels)}


def _collator(job: Job) -> Callable[[list[dict[str, list[int]]]], dict[str, Tensor]]:
    """Return a collator of rows of the dataset that calls `job.collate`."""
    return lambda rows: job.collate([Example(tuple(row["input_ids"]), tuple(row["labels"])) for row in rows])


def _settings(job: Job) -> dict[str, object]:
    """Return the `TrainingArguments` of a job."""
    return {
        "output_dir": str(job.directory),
        "per_device_train_batch_size": job.batch,
        "per_device_eval_batch_size": job.eval_batch,
        "gradient_accumulation_steps": job.accumulate,
        "num_train_epochs": job.epochs,
        "max_steps": job.max_steps or -1,
        "optim": {"sgd": "sgd", "adamw": "adamw_torch"}[job.optimizer],
        "weight_decay": 0.01 if job.optimizer == "adamw" else 0.0,  # the default of torch.optim
        "learning_rate": job.rate,
        # "constant" ignores `warmup_steps`.
        "lr_scheduler_type": "constant_with_warmup" if job.schedule == "constant" and job.warmup else job.schedule,
        "warmup_steps": job.warmup,
        "max_grad_norm": job.clip or 0.0,
        "seed": job.seed,
        "data_seed": job.seed,
        "dataloader_num_workers": job.workers,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        **_cadences(job),
    }


def _cadences(job: Job) -> dict[str, object]:
    """Return the `TrainingArguments` of logs, evaluations and checkpoints."""

    def strategy(every: int) -> str:
        return "steps" if every else "no"

    return {
        "logging_strategy": strategy(job.log_every),
        "logging_steps": job.log_every or 1,
        "eval_strategy": strategy(job.eval_every),
        "eval_steps": job.eval_every or None,
        "save_strategy": strategy(job.save_every),
        # A number is required even if the strategy is "no".
        "save_steps": job.save_every or 500,
        "save_total_limit": job.keep,
        "load_best_model_at_end": job.best,
        "metric_for_best_model": "eval_loss" if job.best else None,
        "greater_is_better": False if job.best else None,
    }


class Watch(TrainerCallback):
    """Records the events of a run in its report, and stops the run after the step `job.stop_at`."""

    def __init__(self, job: Job, report: Report) -> None:
        self.job, self.report = job, report

    def on_step_end(self, args: object, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.report.events.append("step_end")
        if state.global_step == self.job.stop_at:
            control.should_training_stop = True


def _recorder_of(event: str) -> Callable[..., None]:
    """Return a method of `Watch` that records an event."""
    return lambda self, *_, **__: self.report.events.append(event)


# The other events are only recorded, by methods that differ only in the name of the event.
for _event in ("train_begin", "epoch_begin", "step_begin", "log", "evaluate", "save", "epoch_end", "train_end"):
    setattr(Watch, f"on_{_event}", _recorder_of(_event))


def _complete_report(job: Job, report: Report, trainer: Trainer) -> Report:
    """Add all facts about a finished run, except its events, to its report, and return the report."""
    names = {"learning_rate": "rate", "grad_norm": "norm"}
    for row in trainer.state.log_history:
        if "eval_loss" in row:
            report.evaluations.append((row["step"], row["eval_loss"]))
        elif "loss" in row:
            report.logs.append({names.get(name, name): float(value) for name, value in row.items()})
    report.checkpoints = {int(path.name.split("-")[1]): path for path in Path(job.directory).glob("checkpoint-*")}
    report.final_step = trainer.state.global_step
    report.best = trainer.state.best_global_step
    return report
