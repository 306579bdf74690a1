"""One file an API family, each of which registers its handlers with `handles`; the families are listed in `served`."""
