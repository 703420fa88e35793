"""The commands: parse, call, print. Imports everything."""
