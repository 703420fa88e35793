"""Running: comparisons. Imports zoo, attacks, deployments, models, networks, frameworks, hosts, records, the ground."""
