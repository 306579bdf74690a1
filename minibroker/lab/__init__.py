"""The lab: a broker in a browser's tab, with the explorer's page and clients, and no server behind it.

    page                        messages            worker (Pyodide: CPython as WebAssembly)
    the explorer's page  --> a request each way --> the application that `serve --explorer` has
                                                    clients --> sockets in memory --> the broker

`writing` makes the folder of files; `desk` is what the worker runs. The broker's modules are as they are everywhere:
`memory_network` and `threads` are what a tab has in the place of sockets and threads.
"""
