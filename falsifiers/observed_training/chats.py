"""A distillation of small Hugging Face models on chats, as a command: `python -m ...chats DIRECTORY SETTING...`."""

import json
import os
import sys
from pathlib import Path

import torch

from falsifiers.hugging_face_run.falsify_run import conversations, word_tokenizer, write_causal


def main(directory: Path, *settings: str) -> None:
    """Write the models and the chats into `directory`, and distil them by the command line.

    Args:
        directory: An empty directory; the output is `out` in it.
        settings: Further words of the command, such as `--documents` and `pack`.
    """
    from reference_trainer.cli import main as command

    words = word_tokenizer()
    write_causal(directory / "teacher", words, 32, torch.bfloat16)
    write_causal(directory / "student", words, 16, torch.float32, tie_word_embeddings=True)
    (directory / "chats.jsonl").write_text("\n".join(map(json.dumps, conversations(0))))
    places = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "out": "out", "data-cache": "cache"}
    paths = (word for name, path in places.items() for word in (f"--{name}", str(directory / path)))
    os.environ["HF_HUB_OFFLINE"] = "1"
    # A thread that watches for a hang would keep the process from being copied, and so from being probed.
    command(["distill", *paths, "--length", "40", "--device", "cpu", "--hang-after", "0", *settings])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
