"""The change history as a Spark data source: `format("routebook")`.

`address` opens the store, `stream` finds positions in a stream, `reading` reads everything between two positions,
`options` checks what a user gave, and `data_source` is the interface that Spark calls.
"""
