"""Running: trained networks behind Foolbox's `Model`, and asking them fast. Imports frameworks and the ground."""
