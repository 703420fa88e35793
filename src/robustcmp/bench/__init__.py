"""Training and prediction, each measured in a process of its own, and what was measured. Imports everything above."""
