"""Running: subset, plan, execution, checks. Imports zoo, attacks, models, networks, frameworks, records, the ground."""
