"""Attacks on the documents of a text as rows of tokens, for `contracts/text-documents.yaml`."""
