"""Export and import of a whole namespace.

`document` takes a snapshot of the table and writes it as JSON, `planning` works out what an import would change, and
`importing` does it with the verbs that brokers and operators use, so every rule of the route table holds.
"""
