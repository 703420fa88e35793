"""Running: runs. Imports zoo, attacks, deployments, models, networks, frameworks, hosts, data, records, the ground."""
