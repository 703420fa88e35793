"""Running: networks in the programs that they are deployed in, a runtime a file. Imports models, frameworks, networks, hosts and the ground."""
