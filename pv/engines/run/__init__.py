"""Reference runs and observed commands, judged by their records."""
