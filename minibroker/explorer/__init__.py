"""The explorer: what a broker does and stores, in the browser. It needs the extra `minibroker[web]`.

Each view has a file here, with its paths below `/explorer/api/`, and a module of the page in `static/views/`.
"""
