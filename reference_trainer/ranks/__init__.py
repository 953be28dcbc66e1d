"""Processes that train one model together: what they add up, and what they agree on."""
