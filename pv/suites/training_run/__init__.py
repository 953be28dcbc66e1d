"""Claims about a training run that was observed: what holds for every correct script, judged from its trace."""
