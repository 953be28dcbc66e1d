"""Runs in one process that keep what they hand over to be saved, and go on from it."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from falsifiers.callbacks.lifecycle import Call, Recorder, Script, lifecycle
from falsifiers.callbacks.real_run import SETTINGS, checkpoint, parts, recording_callbacks, schedule_of
from reference_trainer.distillation.providers import FixtureStudent
from reference_trainer.errors import StopRequestedError
from reference_trainer.plan.schedule import Event, Position
from reference_trainer.training.state import ResumePoint, RunServices, TrainState, state_from_json, state_to_json

FIELDS = ("learning_rate", "loss", "best_loss", "tokens", "sequences")


def rate_of(step: int) -> float:
    """Return a learning rate that differs from step to step."""
    return 0.5 / step


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run hands over to be saved, and its student's table. calls: the number of calls of hooks before."""

    text: str
    table: Tensor
    due: bool
    evaluated: bool
    calls: int

    @property
    def state(self) -> TrainState:
        return state_from_json(self.text)


class KeptRun:
    """A real run of a script; its clock shows the calls of hooks so far.

    resumed: what an equal run handed over. named: whether that checkpoint has a path. asked_at: the call in which the
    run is asked to stop. kept: what it hands over. loaded: states that its callbacks get back, with the calls before.
    known: what the context of each call has, but for times.
    """

    def __init__(
        self,
        subject: Any,
        script: Script,
        *,
        resumed: Kept | None = None,
        named: bool = True,
        asked_at: int | None = None,
        evaluate: Any = lambda: {"hard_loss": 2.0},
        **others: Any,
    ) -> None:
        self.recorder, self.asked_at = Recorder(script), asked_at
        self.kept: list[Kept] = []
        self.loaded: list[tuple[int, int, Any]] = []
        self.elapsed: list[float] = []
        self.result: Any = None
        self.left: StopRequestedError | None = None
        self.known: list[dict[str, Any]] = []
        needed, point = parts() | {"learning_rate": rate_of} | others, None
        if resumed is not None:
            needed["student"] = FixtureStudent(resumed.table, 1.0)
            state = resumed.state
            point = ResumePoint(state=state, checkpoint=checkpoint(state.position.step) if named else None)
        self.student = needed["student"]
        try:
            self.result = subject.train(
                **needed,
                schedule=schedule_of(script),
                objective=subject.Objective(**SETTINGS),
                callbacks=self._callbacks(),
                services=RunServices(
                    evaluate=evaluate,
                    save=self._save,
                    stop_requested=lambda: self.asked,
                    clock=lambda: float(len(self.calls)),
                ),
                resume_from=point,
            )
        except StopRequestedError as error:
            self.left = error

    @property
    def calls(self) -> list[Call]:
        return self.recorder.calls

    @property
    def asked(self) -> bool:
        return self.asked_at is not None and len(self.calls) > self.asked_at

    def _callbacks(self) -> list[Any]:
        made = recording_callbacks(len(self.recorder.script.answers), self._act)
        for number, callback in enumerate(made):
            callback.state_dict = lambda number=number: {"events": self.recorder.events[number]}
            callback.load_state_dict = lambda state, number=number: self.loaded.append((len(self.calls), number, state))
        return made

    def _act(self, callback: int, event: str, context: Any) -> Any:
        self.elapsed.append(context.elapsed_s)
        metrics = {name: value for name, value in context.metrics.items() if not name.endswith("_per_s")}
        own = {name: getattr(context, name) for name in FIELDS}
        self.known.append(own | {"metrics": metrics, "evaluation": dict(context.validation_metrics)})
        return self.recorder.act(callback, event, context)

    def _save(self, given: Any) -> Any:
        self.kept.append(
            Kept(state_to_json(given.state), self.student.logits_table, given.due, given.evaluated, len(self.calls))
        )
        return checkpoint(given.state.position.step) if given.due else None


def rest_of(script: Script, at: Position, *, named: bool) -> tuple[Script, list[Call]]:
    """Return the script of the run that goes on from a saved position, and its calls.

    They are `on_train_begin`, `on_save` if the checkpoint is named, and those of the whole run from the `on_step_end`
    of the step, or from its `on_train_end` if it was saved then; the step is not saved again. The answers of the whole
    run are given by its later events only.
    """
    count, step = len(script.answers), at.step
    whole = lifecycle(script).calls
    hook = "on_train_end" if at.event is Event.TRAIN_END else "on_step_end"
    first = next(place for place, call in enumerate(whole) if (call.event, call.step) == (hook, step))
    begin = ["on_train_begin", *(["on_save"] if named else [])]
    calls = [Call(callback, event, whole[first].epoch, step) for event in begin for callback in range(count)]
    answers = tuple((None,) * len(begin) + given[first // count :] for given in script.answers)
    rest = [call for call in whole[first:] if (call.event, call.step) != ("on_save", step)]
    return replace(script, answers=answers), calls + rest
