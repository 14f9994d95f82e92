"""The history as a Spark source: `format("routebook")`."""
