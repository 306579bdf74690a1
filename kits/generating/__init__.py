"""Writes the verbs of the kits from the OpenAPI description of the control: `python3 -m kits.generating`."""
