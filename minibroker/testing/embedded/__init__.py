"""The broker of a test and its life: its directories, its ports, its users and keys, its registry."""
