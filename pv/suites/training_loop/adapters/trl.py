"""`trl.SFTTrainer` on a tokenized dataset, with its own collator and its own loss."""

from collections.abc import Callable, Iterable, Mapping

from datasets import Dataset
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput
from trl import SFTConfig, SFTTrainer

from pv.suites.training_loop.adapters.transformers import CAST, ProbeConfig, Transformers, row_of, tied_names
from pv.suites.training_loop.job import Example, Job, Report
from pv.suites.training_loop.probe import PAD, VOCABULARY, Probe


class Backbone(nn.Module):
    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, input_ids: Tensor, **_: object) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.probe.hidden(input_ids))


class HeadForCausalLM(PreTrainedModel, GenerationMixin):
    """A backbone and a head, which SFTTrainer may call itself.

    Trainer counts the first labels of rows too, unless the name of the class ends like this.
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
    """Runs jobs with a subclass of `trl.SFTTrainer`; see `Transformers` for the arguments."""

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
        self.tolerance = CAST

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
        return Dataset.from_list([row_of(each) for each in examples]) if examples else None

    def extra(self, job: Job) -> dict[str, object]:
        return {
            "max_length": None,
            "loss_type": "nll",
            "bf16": False,
            "gradient_checkpointing": False,
            "pad_to_multiple_of": job.pad_multiple,
        }


def _tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": PAD} | {f"t{i}": i for i in range(1, VOCABULARY)}
    model = models.WordLevel(words, "t1")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), pad_token="<pad>", eos_token=f"t{VOCABULARY - 1}")
