"""HTTP: routes that are derived from Python functions, their description, and the server. It has no framework."""
