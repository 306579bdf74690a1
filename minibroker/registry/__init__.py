"""A schema registry with Confluent's HTTP API, whose state is the broker's topic `_schemas`.

It needs the extra `minibroker[registry]`. Nothing in a broker without a registry imports this package.
"""
