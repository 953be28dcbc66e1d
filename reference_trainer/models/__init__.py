"""The decoder, its device and its dtype."""
