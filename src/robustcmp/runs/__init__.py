"""Running: runs. Imports sources, attacks, deployments, models, networks, frameworks, hosts, data, records, ground."""
