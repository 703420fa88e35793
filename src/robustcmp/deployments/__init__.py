"""Running: networks in the programs that deploy them. Imports models, frameworks, networks, hosts and the ground."""
