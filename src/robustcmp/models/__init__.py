"""Running: trained networks behind Foolbox's `Model`, and asking them fast. Imports frameworks, networks and the ground."""
