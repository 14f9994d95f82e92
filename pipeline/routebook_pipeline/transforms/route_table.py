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

from routebook_pipeline.history import History
from routebook_pipeline.kinds import Kind
from routebook_pipeline.transforms.frames import one_if
from routebook_pipeline.transforms.instants import Instants, rank
from routebook_pipeline.transforms.losses import Marks, literal_array, marks_of, with_validity
from routebook_pipeline.transforms.seat_states import REGISTRATION_CODES, is_evidence, is_up

WRITE: Final = 2
READ: Final = 4
NEVER: Final = -1
_VALUES: Final = ("row", "put", "read_queues", "write_queues", "perm", "flags")


def is_group_removal() -> Column:
    """With this entry the group lost its last instance and all its queue data."""
    return (F.col("row") == 0) & F.col("group_removed") & F.col("broker").isNotNull()


def is_permission_change(rule: str | None = None) -> Column:
    """A permission for all topics of a broker: `set` or `clear-write`."""
    found = (F.col("row") == 0) & (F.col("code") == int(Kind.WRITE_PERMISSION)) & F.col("broker").isNotNull()
    return found if rule is None else found & (F.col("rule") == F.lit(rule))


def is_put() -> Column:
    return ~F.coalesce(F.col("removed"), F.lit(False))


def permission() -> Column:
    """The permission of the last item after the last `set` and the last `clear-write` of its broker.

    A `set` applies if it is newer than the item, and a `clear-write` if it is newer than both.
    """
    is_set = F.coalesce(F.col("set_ord") > F.col("item_ord"), F.lit(False))
    base = F.when(is_set, F.col("set_perm")).otherwise(F.col("perm"))
    since = F.when(is_set, F.col("set_ord")).otherwise(F.col("item_ord"))
    cleared = base.bitwiseAND(F.lit(~WRITE))
    return F.when(F.coalesce(F.col("clear_ord") > since, F.lit(False)), cleared).otherwise(base)


def is_writable() -> Column:
    return F.coalesce(F.col("perm").bitwiseAND(F.lit(WRITE)) != 0, F.lit(False))


def queue_line(changes: DataFrame, marks: Marks) -> DataFrame:
    """Every item of every queue entry, in order, with what ends it.

    `was_present`: the queue entry existed just before. `before`: the read queues, write queues and permission that the
    item before it states. `next_ord`, `next_ms`: the next item of the same queue entry. `gone_ord`, `gone_ms`: if the
    queue entry is removed before that, with its group or by a baseline. `set_ord`: the first permission that was set
    for the whole broker after the item and before its end. One more row per such permission has no topic, but
    `permits`: whether queues that are older than it can be written to since.

    The rows of a broker are read and shuffled once, and sorted twice: by time, for the next event of the broker, and by
    topic, for the next item.
    """
    item = F.col("topic").isNotNull()
    is_permission = is_permission_change("set") | is_permission_change("clear-write")
    permits = F.when(is_permission_change("set"), is_writable()).otherwise(F.lit(False))
    rows = changes.where(item | ((is_group_removal() | is_permission) & F.col("broker").isNotNull())).select(
        "broker",
        "topic",
        "cluster",
        "ord",
        "row",
        "ms",
        "read_queues",
        "write_queues",
        "perm",
        is_put().alias("put"),
        F.when(~item & is_group_removal(), F.lit(True)).alias("removes"),
        F.when(~item & is_permission, permits).alias("permits"),
    )
    by_time = W.partitionBy("broker").orderBy(F.desc("ord"), F.desc("row")).rowsBetween(W.unboundedPreceding, -1)

    def next_of(event: str, column: str) -> Column:
        return F.last(F.when(F.col(event).isNotNull(), F.col(column)), ignorenulls=True).over(by_time)

    timed = rows.withColumns(
        {
            "removed_ord": next_of("removes", "ord"),
            "removed_ms": next_of("removes", "ms"),
            "set_ord": next_of("permits", "ord"),
            "set_ms": next_of("permits", "ms"),
        }
    )
    gone = {"gone_ord": F.col("removed_ord"), "gone_ms": F.col("removed_ms")}
    if marks.baselines:
        number = rank("ord", [one.begin for one in marks.baselines])
        end_ord = F.get(literal_array(one.ord for one in marks.baselines), number)
        end_ms = F.get(literal_array(one.ms for one in marks.baselines), number)
        by_baseline = F.coalesce(end_ord < F.col("removed_ord"), end_ord.isNotNull())
        gone = {
            "gone_ord": F.least(end_ord, "removed_ord"),
            "gone_ms": F.when(by_baseline, end_ms).otherwise(gone["gone_ms"]),
        }
    in_order = W.partitionBy("broker", "topic").orderBy("ord", "row")
    values = F.struct("read_queues", "write_queues", "perm")
    linked = timed.withColumns(gone).withColumns(
        {
            "next_ord": F.lead("ord").over(in_order),
            "next_row": F.lead("row").over(in_order),
            "next_ms": F.lead("ms").over(in_order),
            "cluster": F.last("cluster", ignorenulls=True).over(in_order),
            "before": F.lag(values).over(in_order),
        }
    )
    is_gone = F.coalesce(F.col("gone_ord") < F.col("next_ord"), F.col("gone_ord").isNotNull())
    ended = linked.withColumns({name: F.when(is_gone, F.col(name)) for name in ("gone_ord", "gone_ms")})
    lasts = F.col("put") & F.col("gone_ord").isNull()
    end_ord = F.coalesce("gone_ord", "next_ord")
    is_set = F.coalesce(F.col("set_ord") < end_ord, F.col("set_ord").isNotNull())
    return ended.withColumns(
        {
            "was_present": F.coalesce(F.lag(lasts).over(in_order), F.lit(False)),
            "set_ord": F.when(is_set, F.col("set_ord")),
            "values": values,
        }
    ).drop("removed_ord", "removed_ms", "removes")


def presence_changes(line: DataFrame) -> DataFrame:
    """When a queue entry came into being (`present`) or ceased to exist: `cluster`, `broker`, `topic`, `ord`, `ms`."""
    came, ceased = F.col("put") & ~F.col("was_present"), ~F.col("put") & F.col("was_present")
    by_item = F.when(came | ceased, F.struct("ord", "ms", F.col("put").alias("present")))
    by_event = F.when(
        F.col("put") & F.col("gone_ord").isNotNull(),
        F.struct(F.col("gone_ord").alias("ord"), F.col("gone_ms").alias("ms"), F.lit(False).alias("present")),
    )
    steps = F.array_compact(F.array(by_item, by_event))
    return line.where(F.col("topic").isNotNull()).select("cluster", "broker", "topic", F.inline(steps))


def writable_totals(line: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: from this entry on the group has `write_queues` writable queues, in `writable` queue
    entries.

    Each broker has two sums: one of the queue entries that are newer than the last permission for the whole broker,
    which have a permission of their own, and one of the older entries, which all have that one. So a permission for the
    whole broker is one row, and not one per queue entry.
    """
    item, is_set = F.col("topic").isNotNull() & F.col("put"), F.col("set_ord").isNotNull()
    queues, own = F.coalesce("write_queues", F.lit(0)).cast("long"), one_if(is_writable())

    def edge(condition: Column, ord_: Column, ms: Column, *, newer: Column, older: Column) -> Column:
        return F.when(
            condition,
            F.struct(
                ord_.alias("ord"),
                ms.alias("ms"),
                (newer * queues).alias("newer_queues"),
                newer.alias("newer"),
                (older * queues).alias("older_queues"),
                older.alias("older"),
                F.when(F.col("topic").isNull(), F.col("permits")).alias("permits"),
            ),
        )

    none, one = F.lit(0).cast("long"), F.lit(1).cast("long")
    end_ord, end_ms = (
        F.coalesce("gone_ord", "next_ord"),
        F.when(F.col("gone_ord").isNotNull(), F.col("gone_ms")).otherwise(F.col("next_ms")),
    )
    edges = F.array_compact(
        F.array(
            edge(
                F.col("topic").isNull() & F.col("permits").isNotNull(),
                F.col("ord"),
                F.col("ms"),
                newer=none,
                older=none,
            ),
            edge(item, F.col("ord"), F.col("ms"), newer=own, older=none),
            edge(item & is_set, F.col("set_ord"), F.col("set_ms"), newer=-own, older=one),
            edge(
                item & end_ord.isNotNull(),
                end_ord,
                end_ms,
                newer=F.when(is_set, none).otherwise(-own),
                older=F.when(is_set, -one).otherwise(none),
            ),
        )
    )
    sums = ("newer_queues", "newer", "older_queues", "older")
    steps = (
        line.select("broker", F.inline(edges))
        .groupBy("broker", "ord")
        .agg(F.max("ms").alias("ms"), F.max("permits").alias("permits"), *[F.sum(name).alias(name) for name in sums])
    )
    so_far = W.partitionBy("broker").orderBy("ord")
    permitted = one_if(F.last("permits", ignorenulls=True).over(so_far))
    running = {name: F.sum(name).over(so_far) for name in sums}
    return steps.select(
        "broker",
        "ord",
        "ms",
        (running["newer_queues"] + permitted * running["older_queues"]).alias("write_queues"),
        (running["newer"] + permitted * running["older"]).alias("writable"),
    )


def losses_of_writability(totals: DataFrame) -> DataFrame:
    """`broker`, `ord`, `ms`: with this entry the group lost its last writable queue. At `until_ms` it got one again;
    null if it never did. `totals`: from `writable_totals`.
    """
    in_order = W.partitionBy("broker").orderBy("ord")
    had_any = F.lag("writable", 1, 0).over(in_order) > 0
    return (
        totals.withColumn("had_any", had_any)
        .where((F.col("writable") > 0) != F.col("had_any"))
        .withColumn("until_ms", F.lead("ms").over(in_order))
        .where("had_any")
        .select("broker", "ord", "ms", "until_ms")
    )


_GROUP_CODES: Final = (*REGISTRATION_CODES, int(Kind.GROUP_CHANGED))


def describes_group() -> Column:
    """The entry states the zone and acting flag of its group."""
    return (F.col("row") == 0) & F.col("code").isin(*_GROUP_CODES) & F.col("broker").isNotNull()


_KEYS: Final = ("broker", "topic", "cluster", "broker_id", "addr", "zone", "acting")
"""What one row of `_last_of_each` is about: a queue entry (the first three), a seat with one description (all but
`topic`), or a broker as a whole (the first).
"""
_LAST: Final = {"item_ord": _VALUES, "set_ord": ("set_perm",)}
"""The place of a last row, and the values that it has."""
_HIGHEST: Final = ("removed_ord", "clear_ord", "evidence_ord", "up_ord", "description_ord")


def table_at(history: History, instants: Instants, topic: str | None = None) -> DataFrame:
    """The route table at each instant (`at`), in rows of one broker each.

    Rows with a topic are queue entries that exist: `cluster` (of the item), the values, and their place `item_ord`,
    `row`. Each broker also has rows without one. All rows have `owner` (the cluster of the group, null if no entry ever
    described it), `zone`, `acting` and `addresses` of the broker's group, and the columns of `losses.Validity`.

    The history is read once. Names are keys and all other values have a fixed width, so that Spark keeps only the last
    row of each key before anything is shuffled.
    """
    changes, shared = history.changes, shared_names(history)
    last = with_validity(_last_of_each(changes, instants, topic), marks_of(history), instants)
    of_subject = W.partitionBy("at", "broker", "topic", "broker_id")
    of_broker = W.partitionBy("at", "broker")
    valid_since = F.greatest(F.coalesce("last_loss_ord", F.lit(NEVER)), F.coalesce("baseline_begin", F.lit(NEVER)))
    # The last evidence about an id counts, under whichever cluster name.
    is_held = (
        (F.col("evidence_ord") == F.col("last_evidence"))
        & (F.col("evidence_ord") == F.col("up_ord"))
        & (F.col("evidence_ord") > valid_since)
    )
    held = F.collect_list(F.when(is_held, F.struct("broker_id", "addr"))).over(of_broker)
    description = F.when(F.col("description_ord").isNotNull(), F.struct("zone", "acting", "cluster"))
    described = F.max_by(description, "description_ord").over(of_broker)
    found = (
        last.withColumns(
            {
                "last_item": F.max("item_ord").over(of_subject),
                "last_evidence": F.max("evidence_ord").over(of_subject),
            }
        )
        .withColumns(
            {
                **{name: F.max(name).over(of_broker) for name in ("removed_ord", "set_ord", "clear_ord")},
                "set_perm": F.max_by("set_perm", "set_ord").over(of_broker),
                "held": held,
                "described": described,
            }
        )
        .where(F.col("topic").isNull() | (_is_present() & (F.col("item_ord") == F.col("last_item"))))
    )
    none = F.create_map().cast("map<bigint,string>")
    owner = F.col("described.cluster")
    if shared:
        found = found.join(F.broadcast(_first_clusters(changes, instants, shared)), ["at", "broker"], "left")
        owner = F.coalesce("owner", owner)
    return found.withColumns(
        {
            "perm": permission(),
            "owner": owner,
            "zone": F.col("described.zone"),
            "acting": F.coalesce("described.acting", F.lit(False)),
            "addresses": F.coalesce(F.map_from_entries(F.sort_array("held")), none),
        }
    )


def _is_present() -> Column:
    """The item was removed neither by itself, nor with its group, nor by a baseline that did not name it."""
    since = F.greatest(F.coalesce("removed_ord", F.lit(NEVER)), F.coalesce("baseline_begin", F.lit(NEVER)))
    return F.col("put") & (F.col("item_ord") > since)


def _last_of_each(changes: DataFrame, instants: Instants, topic: str | None) -> DataFrame:
    """`at`, and the last row of each of `_KEYS` that is visible then."""
    item = F.col("topic").isNotNull()
    of_seat = is_evidence() | describes_group()
    of_broker = is_group_removal() | is_permission_change()
    wanted = item if topic is None else F.col("topic").eqNullSafe(F.lit(topic))

    def place(condition: Column) -> Column:
        return F.when(condition, F.col("ord"))

    rows = instants.visible(changes.where((wanted | of_seat | of_broker) & F.col("broker").isNotNull())).select(
        "broker",
        "topic",
        F.when(item | of_seat, F.col("cluster")).alias("cluster"),
        *[F.when(of_seat, F.col(name)).alias(name) for name in ("broker_id", "addr", "zone", "acting")],
        instants.first_visible().alias("first_visible"),
        place(item).alias("item_ord"),
        "row",
        is_put().alias("put"),
        "read_queues",
        "write_queues",
        "perm",
        "flags",
        F.when(is_permission_change("set"), F.col("perm")).alias("set_perm"),
        place(is_permission_change("set")).alias("set_ord"),
        place(is_permission_change("clear-write")).alias("clear_ord"),
        place(is_group_removal()).alias("removed_ord"),
        place(is_evidence()).alias("evidence_ord"),
        place(is_evidence() & is_up()).alias("up_ord"),
        place(describes_group()).alias("description_ord"),
    )
    aggregates = {
        **{name: F.max(name) for name in (*_LAST, *_HIGHEST)},
        **{value: F.max_by(value, order) for order, values in _LAST.items() for value in values},
    }
    return instants.carried(rows, _KEYS, aggregates)


def shared_names(history: History) -> list[str]:
    """The broker names that several clusters have used. Found once for each history."""
    key = shared_names.__name__
    if key not in history.derived:
        names = (
            history.changes.where(describes_group())
            .groupBy("broker")
            .agg(F.min("group_key").alias("one"), F.max("group_key").alias("other"))
            .where(F.col("one") != F.col("other"))
            .select("broker")
        )
        history.derived[key] = [row.broker for row in names.collect()]
    found: list[str] = history.derived[key]
    return found


def _first_clusters(changes: DataFrame, instants: Instants, names: list[str]) -> DataFrame:
    """For these broker names: the first cluster since the group was last removed (`owner`)."""
    of_shared = changes.where((describes_group() | is_group_removal()) & F.col("broker").isin(names)).select(
        "broker",
        "ord",
        "ms",
        F.when(is_group_removal(), F.col("ord")).alias("removed"),
        F.when(describes_group(), F.struct("ord", "cluster")).alias("description"),
    )
    collected = (
        instants.for_each(of_shared)
        .groupBy("at", "broker")
        .agg(F.max("removed").alias("removed_ord"), F.collect_list("description").alias("descriptions"))
    )
    since_removal = F.filter(
        "descriptions", lambda description: description["ord"] > F.coalesce(F.col("removed_ord"), F.lit(NEVER))
    )
    return collected.select("at", "broker", F.array_min(since_removal)["cluster"].alias("owner"))
