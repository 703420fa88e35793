"""Recipes and trained weights, data only; read by `robustcmp.sources`."""
