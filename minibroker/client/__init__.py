"""A client for any Kafka cluster, which our commands, the pipeline and tests use. Messages are declared in `protocol`.

`client_connection` turns requests into bytes and bytes into answers, without I/O; `opening` negotiates versions and
authenticates; `cluster_client` finds nodes, leaders and coordinators, and retries. They are written once, as coroutines
over a `Network`. `blocking.Client` runs them on sockets, `asynchronous.AsyncClient` in an event loop. The client works
with brokers from Kafka 0.10 on, and with SASL from 1.0 on.
"""
