"""Mutants: deliberate bugs, kept as patches, each of which the checker must catch. `make mutants` prints the table."""
