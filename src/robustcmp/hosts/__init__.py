"""Running: models in environments of their own, a host a framework. Imports the ground."""
