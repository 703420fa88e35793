"""Running: subset, plan, execution, checks. Imports zoo, attacks, models, frameworks, records and the ground."""
