"""Two of the questions, availability by seat and all routes at an instant, in idiomatic DuckDB, Polars and pandas.

They support only what the synthetic history contains: it has no holes, forks, baselines, permission changes or removed
groups.
"""

from collections.abc import Sequence
from typing import Any

import duckdb
import pandas as pd
import polars as pl

UNPLANNED = ("expired", "connection-lost")
UP_CODES = (10, 11, 61)
SEAT_CODES = (10, 11, 12, 61)

Files = Sequence[str]
Availability = dict[tuple[str, str, int], tuple[int, int, int]]
"""Seat -> up, unplanned and planned milliseconds."""
Routes = int
"""The number of (topic, group) pairs that have queues at that instant."""


class DuckDb:
    name = "DuckDB"

    def availability(self, files: Files, start_ms: int, end_ms: int, retire_ms: int) -> Availability:
        rows = duckdb.execute(
            f"""
            WITH evidence AS (
                SELECT seat_key, cluster, broker, broker_id, ord, ms,
                       CASE WHEN code <> 12 THEN 'up' WHEN cause IN {UNPLANNED} THEN 'unplanned'
                            ELSE 'planned' END AS state
                FROM read_parquet($files) WHERE row = 0 AND code IN {SEAT_CODES} AND ms < $end
            ), changed AS (
                SELECT *, lag(state) OVER seat AS before FROM evidence
                WINDOW seat AS (PARTITION BY seat_key ORDER BY ord)
            ), interval AS (
                SELECT *, lead(ms) OVER (PARTITION BY seat_key ORDER BY ord) AS until FROM changed
                WHERE before IS NULL OR (before = 'up') <> (state = 'up')
            ), cut AS (
                SELECT *, greatest(0, least(coalesce(until, $end), $end,
                       CASE WHEN state = 'up' THEN $end ELSE ms + $retire END) - greatest(ms, $start)) AS length
                FROM interval
            )
            SELECT any_value(cluster), any_value(broker), any_value(broker_id),
                   sum(CASE WHEN state = 'up' THEN length ELSE 0 END)::BIGINT,
                   sum(CASE WHEN state = 'unplanned' THEN length ELSE 0 END)::BIGINT,
                   sum(CASE WHEN state = 'planned' THEN length ELSE 0 END)::BIGINT
            FROM cut GROUP BY seat_key
            """,
            {"files": list(files), "start": start_ms, "end": end_ms, "retire": retire_ms},
        ).fetchall()
        return {(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in rows}

    def routes(self, files: Files, at_ms: int) -> Routes:
        rows = duckdb.execute(
            f"""
            WITH until AS (SELECT * FROM read_parquet($files) WHERE ms <= $at),
            queues AS (
                SELECT any_value(topic) AS topic, any_value(cluster) AS cluster, any_value(broker) AS broker,
                       any_value(group_key) AS group_key, max_by(removed, ord) AS removed,
                       max_by(read_queues, ord) AS r, max_by(write_queues, ord) AS w,
                       max_by(perm, ord) AS p, max_by(flags, ord) AS f
                FROM until WHERE topic IS NOT NULL GROUP BY queue_key
            ), seats AS (
                SELECT any_value(group_key) AS group_key, any_value(broker_id) AS broker_id, max_by(code, ord) AS code,
                       max_by(addr, ord) FILTER (code <> 12) AS addr
                FROM until WHERE row = 0 AND code IN {SEAT_CODES} GROUP BY seat_key
            ), brokers AS (
                SELECT group_key, map_from_entries(list((broker_id, addr))) AS addresses FROM seats
                WHERE code <> 12 GROUP BY group_key
            )
            SELECT topic, cluster, broker, r, w, p, f, addresses FROM queues LEFT JOIN brokers USING (group_key)
            WHERE NOT removed
            """,
            {"files": list(files), "at": at_ms},
        ).fetchnumpy()
        return len(rows["topic"])


class Polars:
    name = "Polars"

    def availability(self, files: Files, start_ms: int, end_ms: int, retire_ms: int) -> Availability:
        is_up = pl.col("code") != 12
        changed = (
            pl.scan_parquet(list(files))
            .filter((pl.col("row") == 0) & pl.col("code").is_in(SEAT_CODES) & (pl.col("ms") < end_ms))
            .select("seat_key", "cluster", "broker", "broker_id", "ord", "ms", "code", "cause")
            .sort("seat_key", "ord")
            .with_columns(up=is_up)
            .with_columns(before=pl.col("up").shift(1).over("seat_key"))
            .filter(pl.col("before").is_null() | (pl.col("before") != pl.col("up")))
            .with_columns(until=pl.col("ms").shift(-1).over("seat_key").fill_null(end_ms))
        )
        latest = pl.when("up").then(end_ms).otherwise(pl.col("ms") + retire_ms)
        length = (pl.min_horizontal("until", latest, pl.lit(end_ms)) - pl.max_horizontal("ms", pl.lit(start_ms))).clip(
            lower_bound=0
        )
        unplanned = ~pl.col("up") & pl.col("cause").is_in(UNPLANNED)
        found = (
            changed.with_columns(length=length)
            .group_by("seat_key")
            .agg(
                pl.col("cluster", "broker", "broker_id").first(),
                pl.col("length").filter("up").sum().alias("up_ms"),
                pl.col("length").filter(unplanned).sum().alias("unplanned_ms"),
                pl.col("length").filter(~pl.col("up") & ~unplanned).sum().alias("planned_ms"),
            )
            .collect()
        )
        return {(row[1], row[2], row[3]): (row[4], row[5], row[6]) for row in found.iter_rows()}

    def routes(self, files: Files, at_ms: int) -> Routes:
        until = pl.scan_parquet(list(files)).filter(pl.col("ms") <= at_ms)

        def last(name: str) -> Any:
            return pl.col(name).sort_by("ord").last()

        queues = (
            until.filter(pl.col("topic").is_not_null())
            .group_by("queue_key")
            .agg(
                pl.col("topic", "cluster", "broker", "group_key").first(),
                *(last(name) for name in ("removed", "read_queues", "write_queues", "perm", "flags")),
            )
            .filter(~pl.col("removed"))
        )
        brokers = (
            until.filter((pl.col("row") == 0) & pl.col("code").is_in(SEAT_CODES))
            .group_by("seat_key")
            .agg(
                pl.col("group_key", "broker_id").first(),
                last("code"),
                pl.col("addr").filter(pl.col("code") != 12).last().alias("addr"),
            )
            .filter(pl.col("code") != 12)
            .group_by("group_key")
            .agg(pl.struct("broker_id", "addr").alias("addresses"))
        )
        return int(queues.join(brokers, on="group_key", how="left").collect().height)


class Pandas:
    name = "pandas"

    def availability(self, files: Files, start_ms: int, end_ms: int, retire_ms: int) -> Availability:
        columns = ["seat_key", "cluster", "broker", "broker_id", "row", "ord", "ms", "code", "cause"]
        frame = pd.concat([pd.read_parquet(file, columns=columns) for file in files])
        frame = frame[(frame["row"] == 0) & frame["code"].isin(SEAT_CODES) & (frame["ms"] < end_ms)]
        frame = frame.sort_values(["seat_key", "ord"])
        frame["up"] = frame["code"] != 12
        before = frame.groupby("seat_key")["up"].shift(1)
        frame = frame[before.isna() | (before != frame["up"])]
        until = frame.groupby("seat_key")["ms"].shift(-1).fillna(end_ms)
        latest = (frame["ms"] + retire_ms).where(~frame["up"], end_ms)
        ends = until.clip(upper=latest).clip(upper=end_ms)
        frame["length"] = (ends - frame["ms"].clip(lower=start_ms)).clip(lower=0).astype("int64")
        state = frame["cause"].isin(UNPLANNED).map({True: "unplanned", False: "planned"}).where(~frame["up"], "up")
        summed = frame.assign(state=state).pivot_table(
            index="seat_key", columns="state", values="length", aggfunc="sum", fill_value=0
        )
        names = frame.drop_duplicates("seat_key").set_index("seat_key")[["cluster", "broker", "broker_id"]]
        joined = names.join(summed)
        return {
            (row.cluster, row.broker, int(row.broker_id)): (int(row.up), int(row.unplanned), int(row.planned))
            for row in joined.itertuples()
        }

    def routes(self, files: Files, at_ms: int) -> Routes:
        columns = ["queue_key", "group_key", "seat_key", "topic", "cluster", "broker", "broker_id", "row", "ord"]
        columns += ["ms", "code", "addr", "removed", "read_queues", "write_queues", "perm", "flags"]
        frame = pd.concat([pd.read_parquet(file, columns=columns) for file in files])
        frame = frame[frame["ms"] <= at_ms].sort_values("ord")
        queues = frame[frame["topic"].notna()].drop_duplicates("queue_key", keep="last")
        queues = queues[~queues["removed"].astype(bool)]
        seats = frame[(frame["row"] == 0) & frame["code"].isin(SEAT_CODES)].drop_duplicates("seat_key", keep="last")
        seats = seats[seats["code"] != 12]
        brokers = seats.groupby("group_key")[["broker_id", "addr"]].agg(list)
        return len(queues.join(brokers, on="group_key", rsuffix="_of_seats"))


Rival = DuckDb | Polars | Pandas
RIVALS: tuple[Rival, ...] = (DuckDb(), Polars(), Pandas())
