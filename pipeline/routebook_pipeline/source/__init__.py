"""The history as a Spark source: `format("routebook")`.

Data comes only from here: `positions` knows how places in the stream are found, `reading` that no entry between two
places is missed, `stream_store` where the stream ends; `data_source` is what Spark talks to.
"""
