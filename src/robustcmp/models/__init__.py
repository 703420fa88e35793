"""Running: trained networks behind Foolbox's `Model`, asked fast. Imports frameworks, networks, data and the ground."""
