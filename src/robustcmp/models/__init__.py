"""Running: trained networks behind Foolbox's `Model`, asked fast. Imports frameworks, networks and the ground."""
