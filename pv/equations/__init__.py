"""Executable equations: a small language over named axes, its domains, its values, and what an equation is held to."""
