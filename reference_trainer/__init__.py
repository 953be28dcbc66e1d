"""A knowledge-distillation trainer whose every behaviour is under a contract.

Import what you need from its modules: `losses` and `step` for the distillation step, `providers` for models, `loop` and
`callbacks` for a run, `distill` for the whole pipeline. This file imports nothing: settings are checked without torch.
"""

__version__ = "0.1.0"
