"""The conformance suite of causal language models."""
