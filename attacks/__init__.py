"""Suites, data only; read by `robustcmp.attacks.suite`."""
