"""Teachers and students of Hugging Face, and chats as their data. Needs the extra `hf`.

parts        the parts of a run on Hugging Face models, and which conversations are held back
models       loads, calls and saves causal models
adapters     LoRA adapters of causal models
chats        files -> documents of tokens; which tokens are predicted
pairs        documents in the tokens of two tokenizers
pieces       tokenises texts that share parts without repeated work
generation   answers of the student in place of the data
attention    attention within the documents of packed rows
"""
