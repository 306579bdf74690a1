"""Faults on demand: their grammar (`rules`), the interceptor (`engine`), and the answers that it makes."""
