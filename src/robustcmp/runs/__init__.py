"""Running: subset, plan, run. Imports zoo, attacks, deployments, models, networks, frameworks, hosts, records, the ground."""
