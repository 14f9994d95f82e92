"""Queue data: what a group says of a topic.

An item stands until the next one of the same topic and broker, until its broker's group is removed (all of its queue
data goes with it), or until a whole baseline that began behind it has ended without naming it. Permissions of all
topics of a broker at once (code 21) apply, in their order, to the items before them.

Queue data belongs to a broker's *name*, as it does in the service: the store has one table of queues for a name,
whichever cluster its brokers say they belong to, and an entry about a group that the store has lost names no cluster.

Seats and flags of a group, by the broker's name as the service has it: a name has one table of seats, whichever
cluster its brokers say they belong to.

Every registration sets zone and acting flag, one that was turned down included (it leaves a `group-changed` behind); a
group belongs to the cluster that its first member named, for as long as it is not removed.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Points, latest
from routebook_pipeline.transforms.losses import baselines
from routebook_pipeline.transforms.seat_states import COMES, is_evidence

WRITE: Final = 2
READ: Final = 4
NEVER: Final = -1
_VALUES: Final = ("row", "removed", "read_queues", "write_queues", "perm", "flags")


def items(changes: DataFrame, topic: str | None = None) -> DataFrame:
    found = changes.where(F.col("topic").isNotNull())
    return found if topic is None else found.where(F.col("topic") == F.lit(topic))


def is_removal() -> Column:
    """The group is empty, and all its queue data went with it."""
    return (F.col("row") == 0) & F.col("group_removed") & F.col("broker").isNotNull()


def is_permission(rule: str | None = None) -> Column:
    """`set` or `clear-write`, of all topics of a broker."""
    found = (F.col("row") == 0) & (F.col("code") == int(Kind.WRITE_PERMISSION)) & F.col("broker").isNotNull()
    return found if rule is None else found & (F.col("rule") == F.lit(rule))


def is_put() -> Column:
    return ~F.coalesce(F.col("removed"), F.lit(False))


def is_kept() -> Column:
    """Of a last item: nobody has removed it, neither itself nor with its group (`removed_ord`)."""
    return is_put() & (F.col("ord") > F.coalesce("removed_ord", F.lit(NEVER)))


def is_named() -> Column:
    """Of a last item: no whole baseline that began behind it (`named_from`) has passed it over."""
    return F.col("ord") > F.coalesce("named_from", F.lit(NEVER))


def permission() -> Column:
    """Of a last item with the last `set` and the last `clear-write` of its broker: only what lies behind the item, and
    of the clearing what lies behind the setting, applies.
    """
    is_set = F.coalesce(F.col("set_ord") > F.col("ord"), F.lit(False))
    stands = F.when(is_set, F.col("set_perm")).otherwise(F.col("perm"))
    since = F.when(is_set, F.col("set_ord")).otherwise(F.col("ord"))
    cleared = stands.bitwiseAND(F.lit(~WRITE))
    return F.when(F.coalesce(F.col("clear_ord") > since, F.lit(False)), cleared).otherwise(stands)


def is_writable() -> Column:
    return F.coalesce(F.col("perm").bitwiseAND(F.lit(WRITE)) != 0, F.lit(False))


def last_at(changes: DataFrame, points: Points, topic: str | None = None) -> DataFrame:
    """`at`, `topic`, `broker`, `cluster` (of the item), the values, and the place `ord`, `row`, of every queue entry
    that nobody has removed. It is there when `is_named` by what stands (`marks.standing_at`) at the instant.
    """
    of_topic = items(changes, topic)
    names = of_topic.select("ord", "row", "topic", "cluster", "broker")
    last = points.last(of_topic, ["queue_key"], _VALUES).join(names, ["ord", "row"])
    return (
        latest(last, ["at", "topic", "broker"])
        .join(F.broadcast(_of_group(changes, points)), ["at", "broker"], "left")
        .where(is_kept())
        .select(
            "at",
            "topic",
            "broker",
            "cluster",
            "read_queues",
            "write_queues",
            permission().alias("perm"),
            "flags",
            "ord",
            "row",
        )
    )


def _of_group(changes: DataFrame, points: Points) -> DataFrame:
    """`at`, `broker`: the last entries that concern all queue data of a broker."""
    concerning = changes.where(is_removal() | is_permission()).select(
        "ord",
        "ms",
        "broker",
        "perm",
        F.when(is_removal(), F.col("ord")).alias("removed_ord"),
        F.when(is_permission("set"), F.col("ord")).alias("set_ord"),
        F.when(is_permission("clear-write"), F.col("ord")).alias("clear_ord"),
    )
    return (
        points.each(concerning)
        .groupBy("at", "broker")
        .agg(
            F.max("removed_ord").alias("removed_ord"),
            F.max("set_ord").alias("set_ord"),
            F.max_by("perm", "set_ord").alias("set_perm"),
            F.max("clear_ord").alias("clear_ord"),
        )
    )


def timeline(changes: DataFrame) -> DataFrame:
    """Every change of every queue entry, by `ord`: `present`, `write_queues` and `perm` from then on; `was_present`
    until then. `is_item` says that the row is an item: then `item` and `item_before`, the one before it, hold read and
    write queues and permission as they were said. `item_ord`, `item_row` are the place of the item that stands,
    `set_ord` that of the permission that was set behind it.
    """
    own = items(changes).select(
        _name_key().alias("name_key"),
        "ord",
        "row",
        "ms",
        F.lit(True).alias("is_item"),
        is_put().alias("put"),
        "read_queues",
        "write_queues",
        "perm",
        "broker",
        "cluster",
        "topic",
    )
    known = (
        items(changes).groupBy(_name_key().alias("name_key"), "broker", "topic").agg(F.min("ord").alias("first_ord"))
    )
    event = (
        F.when(is_removal(), "removed").when(is_permission("set"), "set").when(is_permission("clear-write"), "clear")
    )
    of_group = (
        changes.withColumn("event", event)
        .where(F.col("event").isNotNull())
        .select("broker", "ord", "ms", "event", "perm")
    )
    of_all = baselines(changes).select(
        "ord", "ms", F.lit("named").alias("event"), F.lit(None).cast("int").alias("perm"), "begin"
    )
    columns = ("name_key", "broker", "topic", "ord", "ms", "event", "perm")
    told = (
        known.join(of_group, "broker")
        .where(F.col("ord") > F.col("first_ord"))
        .select(*columns, F.lit(None).cast("long").alias("begin"))
        .unionByName(known.join(F.broadcast(of_all), F.col("ord") > F.col("first_ord")).select(*columns, "begin"))
    )
    return _folded(own.unionByName(told, allowMissingColumns=True))


def _folded(told: DataFrame) -> DataFrame:
    in_turn = W.partitionBy("name_key").orderBy("ord", "row")
    until_now = in_turn.rowsBetween(W.unboundedPreceding, W.currentRow)
    before = in_turn.rowsBetween(W.unboundedPreceding, -1)
    is_item = F.coalesce("is_item", F.lit(False))

    def last(condition: Column, value: str) -> Column:
        return F.last(F.when(condition, F.col(value)), ignorenulls=True).over(until_now)

    values = F.struct("read_queues", "write_queues", "perm")
    folded = told.select(
        "name_key",
        "broker",
        "topic",
        F.last("cluster", ignorenulls=True).over(until_now).alias("cluster"),
        F.col("ord").alias("at_ord"),
        "row",
        "ms",
        is_item.alias("is_item"),
        F.col("put"),
        F.when(is_item, values).alias("item"),
        F.last(F.when(is_item, values), ignorenulls=True).over(before).alias("item_before"),
        last(is_item, "ord").alias("ord"),
        last(is_item, "row").alias("item_row"),
        (~last(is_item, "put")).alias("removed"),
        last(is_item, "write_queues").alias("write_queues"),
        last(is_item, "perm").alias("perm"),
        last(F.col("event") == "removed", "ord").alias("removed_ord"),
        last(F.col("event") == "set", "ord").alias("set_ord"),
        last(F.col("event") == "set", "perm").alias("set_perm"),
        last(F.col("event") == "clear", "ord").alias("clear_ord"),
        F.max("begin").over(until_now).alias("named_from"),
    )
    return (
        folded.withColumn("present", is_kept() & is_named())
        .withColumn("perm", permission())
        .withColumn(
            "was_present",
            F.coalesce(F.lag("present").over(W.partitionBy("name_key").orderBy("at_ord", "row")), F.lit(False)),
        )
        .withColumn("set_ord", F.when(F.col("set_ord") > F.col("ord"), F.col("set_ord")))
        .drop("removed", "removed_ord", "set_perm", "clear_ord", "named_from")
        .withColumnsRenamed({"ord": "item_ord", "at_ord": "ord"})
    )


def totals(changes: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: from then on the group has `write_queues` writable queues, in `writable` queue entries."""
    in_turn = W.partitionBy("name_key").orderBy("ord", "row")
    counts = F.col("present") & is_writable()
    queues, entries = F.when(counts, F.col("write_queues")).otherwise(0), F.when(counts, 1).otherwise(0)
    steps = (
        timeline(changes)
        .withColumn("queues", queues)
        .withColumn("entries", entries)
        .withColumn("more_queues", F.col("queues") - F.lag("queues", 1, 0).over(in_turn))
        .withColumn("more_entries", F.col("entries") - F.lag("entries", 1, 0).over(in_turn))
        .groupBy("broker", "ord")
        .agg(F.max("ms").alias("ms"), F.sum("more_queues").alias("queues"), F.sum("more_entries").alias("entries"))
    )
    so_far = W.partitionBy("broker").orderBy("ord")
    return steps.select(
        "broker",
        "ord",
        "ms",
        F.sum("queues").over(so_far).alias("write_queues"),
        F.sum("entries").over(so_far).alias("writable"),
    )


def ends_of_writing(changes: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: with this entry the last queue of a group that could be written to went, and until
    `until_ms` (null: for good) there was none.
    """
    in_turn = W.partitionBy("broker").orderBy("ord")
    had_any = F.lag("writable", 1, 0).over(in_turn) > 0
    return (
        totals(changes)
        .withColumn("had_any", had_any)
        .where((F.col("writable") > 0) != F.col("had_any"))
        .withColumn("until_ms", F.lead("ms").over(in_turn))
        .where("had_any")
        .select("broker", "ord", "ms", "until_ms")
    )


def _name_key() -> Column:
    return F.xxhash64("topic", "broker")


_MARKS: Final = (*COMES, int(Kind.GROUP_CHANGED))


def marks_group() -> Column:
    """The entry says what the group looks like."""
    return (F.col("row") == 0) & F.col("code").isin(*_MARKS) & F.col("broker").isNotNull()


def groups_at(changes: DataFrame, points: Points) -> DataFrame:
    """`at`, `broker`, `cluster`, `zone`, `acting`, and the last word of each seat (`seats`), of every group that was
    heard of. `addresses` makes of the seats what stands at the instant.
    """
    word = F.struct("broker_id", "said_ord", "is_up", "addr")
    found = (
        _seats_at(changes, points)
        .groupBy("at", "broker")
        .agg(
            F.collect_list(F.when(F.col("said_ord").isNotNull(), word)).alias("seats"),
            F.max_by(F.struct("zone", "acting", "cluster"), "marked_ord").alias("last"),
        )
    )
    return found.join(F.broadcast(_first_clusters(changes, points)), ["at", "broker"], "left").select(
        "at",
        "broker",
        F.coalesce("owner", "last.cluster").alias("cluster"),
        "last.zone",
        F.coalesce("last.acting", F.lit(False)).alias("acting"),
        "seats",
    )


def addresses() -> Column:
    """id -> address of `seats` that are UP, given what stands (`lost_ord`, `named_from`): the last word about the id,
    in whichever cluster's name, is a registration behind every loss and not passed over by a baseline.
    """
    heard_since = F.greatest(F.coalesce("lost_ord", F.lit(NEVER)), F.coalesce("named_from", F.lit(NEVER)))

    def is_here(word: Column) -> Column:
        later = F.exists(
            "seats", lambda other: (other["broker_id"] == word["broker_id"]) & (other["said_ord"] > word["said_ord"])
        )
        return word["is_up"] & (word["said_ord"] > heard_since) & ~later

    here = F.transform(F.filter("seats", is_here), lambda word: F.struct(word["broker_id"], word["addr"]))
    nobody = F.create_map().cast("map<bigint,string>")
    return F.coalesce(F.map_from_entries(F.sort_array(here)), nobody)


def _seats_at(changes: DataFrame, points: Points) -> DataFrame:
    """The last word of every seat (`said_ord`, `is_up`) and its last registration (`marked_ord`); a group without a
    seat has a row of its own when an entry speaks of it.
    """
    said = changes.where(is_evidence() | marks_group()).select(
        F.coalesce("seat_key", "group_key").alias("key"),
        "ord",
        "ms",
        F.when(is_evidence(), F.col("ord")).alias("said"),
        F.when(marks_group(), F.col("ord")).alias("marked"),
    )
    last = points.highest(said, ["key"], {"said": "said_ord", "marked": "marked_ord"})
    names = changes.where(is_evidence() | marks_group()).select(
        "ord", "cluster", "broker", "broker_id", "addr", "zone", "acting"
    )
    return last.withColumns(
        {
            "ord": F.coalesce("marked_ord", "said_ord"),
            "is_up": F.coalesce(F.col("said_ord") == F.col("marked_ord"), F.lit(False)),
        }
    ).join(names, "ord")


def _first_clusters(changes: DataFrame, points: Points) -> DataFrame:
    """Only for names that several clusters have used: the first to name the group since it was last removed."""
    told = changes.where(marks_group() | is_removal())
    shared = (
        told.groupBy("broker")
        .agg(F.min("group_key").alias("one"), F.max("group_key").alias("other"))
        .where(F.col("one") != F.col("other"))
        .select("broker")
    )
    of_shared = told.select(
        "broker",
        "ord",
        "ms",
        F.when(is_removal(), F.col("ord")).alias("removed"),
        F.when(marks_group(), F.struct("ord", "cluster")).alias("mark"),
    ).join(F.broadcast(shared), "broker")
    lives = (
        points.each(of_shared)
        .groupBy("at", "broker")
        .agg(F.max("removed").alias("removed_ord"), F.collect_list("mark").alias("marks"))
    )
    of_this_life = F.filter("marks", lambda mark: mark["ord"] > F.coalesce(F.col("removed_ord"), F.lit(NEVER)))
    return lives.select("at", "broker", F.array_min(of_this_life)["cluster"].alias("owner"))
