"""Running: models by name, training, files. Imports deployments, models, frameworks, networks, data and the ground."""
