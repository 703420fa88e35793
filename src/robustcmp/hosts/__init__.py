"""Models in environments of their own: the protocol, the process, the environments, and a host for each framework."""
