"""One file an API family, each of which registers its own keys and versions."""
