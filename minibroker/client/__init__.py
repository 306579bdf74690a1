"""A client of any Kafka, for our own commands, the pipeline and tests: the protocol by the declarations of `protocol`.

`client_connection` turns requests into bytes and bytes into answers, without I/O; `opening` negotiates versions and
authenticates; `cluster_client` finds nodes, leaders and coordinators, and tries again. They are written once, as
coroutines over a `Network`. `blocking.Client` runs them on sockets, `asynchronous.AsyncClient` in an event loop.
Brokers from Kafka 0.10 on are spoken to, with SASL from 1.0 on.
"""
