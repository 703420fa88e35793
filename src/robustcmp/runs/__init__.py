"""Running: subset, plan, execution, checks and transfer. Imports all that runs, records and the ground."""
