"""The adapter of `trl.SFTTrainer` on a tokenized dataset, with the collator and the loss of SFTTrainer."""

from collections.abc import Callable, Iterable, Mapping

from datasets import Dataset
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput
from trl import SFTConfig, SFTTrainer

from pv.suites.training_loop.adapters.transformers import CAST_TOLERANCE, ProbeConfig, Transformers, row_of, tied_names
from pv.suites.training_loop.job import Example, Job, Report
from pv.suites.training_loop.probe import PAD, VOCABULARY, Probe


class Backbone(nn.Module):
    """The probe without its head: maps token ids [B, T] to hidden states [B, T, width]."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, input_ids: Tensor, **_: object) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.probe.hidden(input_ids))


class HeadForCausalLM(PreTrainedModel, GenerationMixin):
    """The probe as a backbone and a head, which SFTTrainer may call separately.

    The name of the class must end with `ForCausalLM`: otherwise Trainer also counts the first label of each row.
    """

    config_class = ProbeConfig
    base_model_prefix = "backbone"

    def __init__(self, config: ProbeConfig, probe: Probe) -> None:
        super().__init__(config)
        self.backbone = Backbone(probe)
        self._tied_weights_keys = tied_names(probe, "backbone.probe")

    def get_output_embeddings(self) -> nn.Module:
        return self.backbone.probe.head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: object = None, **_: object
    ) -> CausalLMOutput:
        return CausalLMOutput(logits=self.backbone.probe(input_ids, attention_mask))


class TRL(Transformers):
    """Runs jobs with a subclass of `trl.SFTTrainer`. Its arguments are the first three arguments of `Transformers`."""

    features: Mapping[str, bool | str] = {"noise": "SFTTrainer collates the rows of a stored dataset"}
    arguments = SFTConfig

    def __init__(
        self,
        trainer: Callable[..., object] = SFTTrainer,
        *,
        settings: Mapping[str, object] | None = None,
        callbacks: Iterable[Callable[[], TrainerCallback]] = (),
    ) -> None:
        super().__init__(trainer, settings=settings, callbacks=callbacks)
        self.tolerance = CAST_TOLERANCE

    def build(self, job: Job, report: Report, callbacks: list[TrainerCallback]) -> object:
        return self.trainer(
            model=report.model,
            args=self.config(job),
            train_dataset=self.rows(job.train),
            eval_dataset=self.rows(job.evaluated),
            processing_class=_tokenizer(),
            callbacks=callbacks,
        )

    def model(self, job: Job) -> PreTrainedModel:
        return HeadForCausalLM(ProbeConfig(vocab_size=VOCABULARY), job.model())

    def rows(self, examples: tuple[Example, ...]) -> object:
        return Dataset.from_list([row_of(example) for example in examples]) if examples else None

    def extra(self, job: Job) -> dict[str, object]:
        """Return the settings of `SFTConfig` that `Transformers` does not set."""
        return {
            "max_length": None,  # no truncation
            "loss_type": "nll",
            "bf16": False,
            "gradient_checkpointing": False,
            "pad_to_multiple_of": job.pad_multiple,
        }


def _tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer, which SFTTrainer requires. The dataset is tokenized, so only the special tokens matter."""
    words = {"<pad>": PAD} | {f"t{i}": i for i in range(1, VOCABULARY)}
    model = models.WordLevel(words, "t1")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), pad_token="<pad>", eos_token=f"t{VOCABULARY - 1}")
