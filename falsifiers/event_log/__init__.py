"""Attacks on observers that write lines of JSON, for `contracts/event-log.yaml`."""
