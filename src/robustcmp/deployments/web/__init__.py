"""Runtimes in a browser, one a file, and what drives it. Imports what deployments may."""
