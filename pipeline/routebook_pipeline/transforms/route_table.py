"""The route table: queue data of topics, and the seats and flags of broker groups.

The service keeps both by broker name. All brokers of a name share one table of seats and one of queues, whichever
cluster they name in their registrations, and an entry about a group that the store has lost names no cluster.

Queue data: an item is valid until a newer item about its topic and broker replaces it, the broker's group is removed
(with all its queue data), or a complete baseline that began after the item ends without naming it. Permissions
that are set for all topics of a broker (code 21) apply, in their order, to the items before them.

Groups: every registration sets zone and acting flag, even one that was turned down (it leaves a `group-changed`). A
group belongs to the cluster that its first instance named, until the group is removed.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as W  # noqa: N817 `Window` is a class of ours
from pyspark.sql import functions as F  # noqa: N812 the usual name

from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.instants import Instants, latest
from routebook_pipeline.transforms.losses import baselines
from routebook_pipeline.transforms.seat_states import REGISTRATION_CODES, is_evidence

WRITE: Final = 2
READ: Final = 4
NEVER: Final = -1
_VALUES: Final = ("row", "removed", "read_queues", "write_queues", "perm", "flags")


def items(changes: DataFrame, topic: str | None = None) -> DataFrame:
    found = changes.where(F.col("topic").isNotNull())
    return found if topic is None else found.where(F.col("topic") == F.lit(topic))


def is_group_removal() -> Column:
    """With this entry the group lost its last instance and all its queue data."""
    return (F.col("row") == 0) & F.col("group_removed") & F.col("broker").isNotNull()


def is_permission_change(rule: str | None = None) -> Column:
    """A permission for all topics of a broker: `set` or `clear-write`."""
    found = (F.col("row") == 0) & (F.col("code") == int(Kind.WRITE_PERMISSION)) & F.col("broker").isNotNull()
    return found if rule is None else found & (F.col("rule") == F.lit(rule))


def is_put() -> Column:
    return ~F.coalesce(F.col("removed"), F.lit(False))


def is_not_removed() -> Column:
    """The last item was removed neither by itself nor with its group (`removed_ord`)."""
    return is_put() & (F.col("ord") > F.coalesce("removed_ord", F.lit(NEVER)))


def survives_baselines() -> Column:
    """The last item is newer than the begin of the last complete baseline (`baseline_begin`)."""
    return F.col("ord") > F.coalesce("baseline_begin", F.lit(NEVER))


def permission() -> Column:
    """The permission of the last item after the last `set` and the last `clear-write` of its broker.

    A `set` applies if it is newer than the item, and a `clear-write` if it is newer than both.
    """
    is_set = F.coalesce(F.col("set_ord") > F.col("ord"), F.lit(False))
    base = F.when(is_set, F.col("set_perm")).otherwise(F.col("perm"))
    since = F.when(is_set, F.col("set_ord")).otherwise(F.col("ord"))
    cleared = base.bitwiseAND(F.lit(~WRITE))
    return F.when(F.coalesce(F.col("clear_ord") > since, F.lit(False)), cleared).otherwise(base)


def is_writable() -> Column:
    return F.coalesce(F.col("perm").bitwiseAND(F.lit(WRITE)) != 0, F.lit(False))


def queues_at(changes: DataFrame, instants: Instants, topic: str | None = None) -> DataFrame:
    """Every queue entry that was not removed: `at`, `topic`, `broker`, `cluster` (of the item), the values, and its
    place `ord`, `row`.

    The caller applies `survives_baselines`, with the columns of `losses.validity_at`.
    """
    of_topic = items(changes, topic)
    names = of_topic.select("ord", "row", "topic", "cluster", "broker")
    last = instants.last_rows(of_topic, ["queue_key"], _VALUES).join(names, ["ord", "row"])
    return (
        latest(last, ["at", "topic", "broker"])
        .join(F.broadcast(_broker_wide_changes(changes, instants)), ["at", "broker"], "left")
        .where(is_not_removed())
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


def _broker_wide_changes(changes: DataFrame, instants: Instants) -> DataFrame:
    """`at`, `broker`, and the last entries that affect all queue data of the broker."""
    broker_wide = changes.where(is_group_removal() | is_permission_change()).select(
        "ord",
        "ms",
        "broker",
        "perm",
        F.when(is_group_removal(), F.col("ord")).alias("removed_ord"),
        F.when(is_permission_change("set"), F.col("ord")).alias("set_ord"),
        F.when(is_permission_change("clear-write"), F.col("ord")).alias("clear_ord"),
    )
    return (
        instants.for_each(broker_wide)
        .groupBy("at", "broker")
        .agg(
            F.max("removed_ord").alias("removed_ord"),
            F.max("set_ord").alias("set_ord"),
            F.max_by("perm", "set_ord").alias("set_perm"),
            F.max("clear_ord").alias("clear_ord"),
        )
    )


def queue_changes(changes: DataFrame) -> DataFrame:
    """Every change of every queue entry.

    `present`, `write_queues`, `perm`: from this change on. `was_present`: before it. `is_item`: the row is an item, and
    then `item` and `item_before` are the read queues, write queues and permission that it and the item before it state.
    `item_ord`, `item_row`: the place of the last item. `set_ord`: the permission that was set after that item.
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
        F.when(is_group_removal(), "removed")
        .when(is_permission_change("set"), "set")
        .when(is_permission_change("clear-write"), "clear")
    )
    of_broker = (
        changes.withColumn("event", event)
        .where(F.col("event").isNotNull())
        .select("broker", "ord", "ms", "event", "perm")
    )
    of_all = baselines(changes).select(
        "ord", "ms", F.lit("baseline").alias("event"), F.lit(None).cast("int").alias("perm"), "begin"
    )
    columns = ("name_key", "broker", "topic", "ord", "ms", "event", "perm")
    events = (
        known.join(of_broker, "broker")
        .where(F.col("ord") > F.col("first_ord"))
        .select(*columns, F.lit(None).cast("long").alias("begin"))
        .unionByName(known.join(F.broadcast(of_all), F.col("ord") > F.col("first_ord")).select(*columns, "begin"))
    )
    return _fold(own.unionByName(events, allowMissingColumns=True))


def _fold(items_and_events: DataFrame) -> DataFrame:
    """The state of each queue entry after every item and event."""
    in_order = W.partitionBy("name_key").orderBy("ord", "row")
    so_far = in_order.rowsBetween(W.unboundedPreceding, W.currentRow)
    before = in_order.rowsBetween(W.unboundedPreceding, -1)
    is_item = F.coalesce("is_item", F.lit(False))

    def last(condition: Column, value: str) -> Column:
        return F.last(F.when(condition, F.col(value)), ignorenulls=True).over(so_far)

    values = F.struct("read_queues", "write_queues", "perm")
    folded = items_and_events.select(
        "name_key",
        "broker",
        "topic",
        F.last("cluster", ignorenulls=True).over(so_far).alias("cluster"),
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
        F.max("begin").over(so_far).alias("baseline_begin"),
    )
    return (
        folded.withColumn("present", is_not_removed() & survives_baselines())
        .withColumn("perm", permission())
        .withColumn(
            "was_present",
            F.coalesce(F.lag("present").over(W.partitionBy("name_key").orderBy("at_ord", "row")), F.lit(False)),
        )
        .withColumn("set_ord", F.when(F.col("set_ord") > F.col("ord"), F.col("set_ord")))
        .drop("removed", "removed_ord", "set_perm", "clear_ord", "baseline_begin")
        .withColumnsRenamed({"ord": "item_ord", "at_ord": "ord"})
    )


def writable_totals(changes: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: from this entry on the group has `write_queues` writable queues, in `writable` queue
    entries.
    """
    in_order = W.partitionBy("name_key").orderBy("ord", "row")
    counts = F.col("present") & is_writable()
    queues, entries = F.when(counts, F.col("write_queues")).otherwise(0), F.when(counts, 1).otherwise(0)
    steps = (
        queue_changes(changes)
        .withColumn("queues", queues)
        .withColumn("entries", entries)
        .withColumn("more_queues", F.col("queues") - F.lag("queues", 1, 0).over(in_order))
        .withColumn("more_entries", F.col("entries") - F.lag("entries", 1, 0).over(in_order))
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


def losses_of_writability(changes: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: with this entry the group lost its last writable queue. At `until_ms` it got one again;
    null if it never did.
    """
    in_order = W.partitionBy("broker").orderBy("ord")
    had_any = F.lag("writable", 1, 0).over(in_order) > 0
    return (
        writable_totals(changes)
        .withColumn("had_any", had_any)
        .where((F.col("writable") > 0) != F.col("had_any"))
        .withColumn("until_ms", F.lead("ms").over(in_order))
        .where("had_any")
        .select("broker", "ord", "ms", "until_ms")
    )


def _name_key() -> Column:
    return F.xxhash64("topic", "broker")


_GROUP_CODES: Final = (*REGISTRATION_CODES, int(Kind.GROUP_CHANGED))


def describes_group() -> Column:
    """The entry states the zone and acting flag of its group."""
    return (F.col("row") == 0) & F.col("code").isin(*_GROUP_CODES) & F.col("broker").isNotNull()


def groups_at(changes: DataFrame, instants: Instants) -> DataFrame:
    """Every group that an entry has named: `at`, `broker`, `cluster`, `zone`, `acting`, and `seats`, the last evidence
    of each of its seats. `addresses` turns the seats into the addresses that hold them at the instant.
    """
    seat = F.struct("broker_id", "evidence_ord", "is_up", "addr")
    found = (
        _seats_at(changes, instants)
        .groupBy("at", "broker")
        .agg(
            F.collect_list(F.when(F.col("evidence_ord").isNotNull(), seat)).alias("seats"),
            F.max_by(F.struct("zone", "acting", "cluster"), "description_ord").alias("last"),
        )
    )
    return found.join(F.broadcast(_first_clusters(changes, instants)), ["at", "broker"], "left").select(
        "at",
        "broker",
        F.coalesce("owner", "last.cluster").alias("cluster"),
        "last.zone",
        F.coalesce("last.acting", F.lit(False)).alias("acting"),
        "seats",
    )


def addresses() -> Column:
    """Broker id -> address of the `seats` that are UP, given `last_loss_ord` and `baseline_begin`.

    A seat is UP if the last evidence about its id, under whichever cluster name, is a registration that is newer than
    every loss and than the begin of the last complete baseline.
    """
    valid_since = F.greatest(F.coalesce("last_loss_ord", F.lit(NEVER)), F.coalesce("baseline_begin", F.lit(NEVER)))

    def is_held(seat: Column) -> Column:
        has_newer = F.exists(
            "seats",
            lambda other: (other["broker_id"] == seat["broker_id"]) & (other["evidence_ord"] > seat["evidence_ord"]),
        )
        return seat["is_up"] & (seat["evidence_ord"] > valid_since) & ~has_newer

    held = F.transform(F.filter("seats", is_held), lambda seat: F.struct(seat["broker_id"], seat["addr"]))
    none = F.create_map().cast("map<bigint,string>")
    return F.coalesce(F.map_from_entries(F.sort_array(held)), none)


def _seats_at(changes: DataFrame, instants: Instants) -> DataFrame:
    """The last evidence of every seat (`evidence_ord`, `is_up`) and its last description of the group
    (`description_ord`). A group that entries describe without naming a seat has one row.
    """
    relevant = changes.where(is_evidence() | describes_group())
    places = relevant.select(
        F.coalesce("seat_key", "group_key").alias("key"),
        "ord",
        "ms",
        F.when(is_evidence(), F.col("ord")).alias("evidence"),
        F.when(describes_group(), F.col("ord")).alias("description"),
    )
    last = instants.highest(places, ["key"], {"evidence": "evidence_ord", "description": "description_ord"})
    names = relevant.select("ord", "cluster", "broker", "broker_id", "addr", "zone", "acting")
    return last.withColumns(
        {
            "ord": F.coalesce("description_ord", "evidence_ord"),
            "is_up": F.coalesce(F.col("evidence_ord") == F.col("description_ord"), F.lit(False)),
        }
    ).join(names, "ord")


def _first_clusters(changes: DataFrame, instants: Instants) -> DataFrame:
    """For broker names that several clusters have used: the first cluster since the group was last removed."""
    relevant = changes.where(describes_group() | is_group_removal())
    shared = (
        relevant.groupBy("broker")
        .agg(F.min("group_key").alias("one"), F.max("group_key").alias("other"))
        .where(F.col("one") != F.col("other"))
        .select("broker")
    )
    of_shared = relevant.select(
        "broker",
        "ord",
        "ms",
        F.when(is_group_removal(), F.col("ord")).alias("removed"),
        F.when(describes_group(), F.struct("ord", "cluster")).alias("description"),
    ).join(F.broadcast(shared), "broker")
    collected = (
        instants.for_each(of_shared)
        .groupBy("at", "broker")
        .agg(F.max("removed").alias("removed_ord"), F.collect_list("description").alias("descriptions"))
    )
    since_removal = F.filter(
        "descriptions", lambda description: description["ord"] > F.coalesce(F.col("removed_ord"), F.lit(NEVER))
    )
    return collected.select("at", "broker", F.array_min(since_removal)["cluster"].alias("owner"))
