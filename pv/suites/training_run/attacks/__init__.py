"""Attacks on the claims: drawn traces of correct runs, and an edit of each for every mistake."""
