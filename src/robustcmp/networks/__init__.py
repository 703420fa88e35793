"""Running: network designs as data, and weights in one canonical layout. Imports the ground."""
