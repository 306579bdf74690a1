"""Opening a log: what a crash left there, and what must be read or cut before it is used."""
