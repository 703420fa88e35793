"""Running: subset, plan, execution. Imports zoo, attacks, models, networks, frameworks, hosts, records, the ground."""
