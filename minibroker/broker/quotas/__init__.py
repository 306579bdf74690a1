"""Limits for clients."""
