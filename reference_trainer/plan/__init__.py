"""What a run does when: the order of its events, and values that change during it."""
