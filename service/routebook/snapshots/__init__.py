"""Export and import of a whole namespace.

`taking` makes a snapshot of the table, `document` writes it as JSON, `planning` says what an import would change,
`importing` does it, through the same verbs that brokers and operators use: every rule of the route table holds.
"""
