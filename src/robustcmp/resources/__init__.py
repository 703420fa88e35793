"""Data files that travel with the package: the paper's figures, and from the top of the repository suites and zoo."""
