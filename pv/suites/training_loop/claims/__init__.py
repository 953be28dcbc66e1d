"""The tests of the suite's claims, one module per topic."""
