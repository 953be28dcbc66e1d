"""The subject of `contracts/packed-attention.yaml`: a forward of a Hugging Face model over packed rows."""

from reference_trainer.distillation.packed_rows import PackedRows, placed_segments
from reference_trainer.huggingface.attention import attend_by_length, attend_documents, isolate_documents
from reference_trainer.huggingface.models import Causal

__all__ = ["Causal", "PackedRows", "attend_by_length", "attend_documents", "isolate_documents", "placed_segments"]
