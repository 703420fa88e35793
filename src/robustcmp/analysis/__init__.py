"""Reading: rates, intervals, tests, variance and the indicator, from records. Imports records and the ground."""
