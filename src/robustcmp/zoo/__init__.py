"""Running: models by name, training, networks from files. Imports models, frameworks, networks, data and the ground."""
