"""Teachers and students of Hugging Face, and chats as their data. Needs the extra `hf`.

parts        the parts of a run on Hugging Face models
models, adapters   causal models; LoRA
chats        files to documents of tokens; `pairs` for two tokenizers, `pieces` saves repeated work
generation   answers of the student in place of the data
attention    packed rows
"""
