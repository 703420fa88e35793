"""Plain data: what a run keeps, and the store that alone writes and reads it. Imports the ground."""
