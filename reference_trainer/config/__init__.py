"""Settings, their types, and their sources."""
