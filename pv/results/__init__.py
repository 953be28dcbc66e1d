"""Results of trials, recorded evidence, and the verdicts that follow from them."""
