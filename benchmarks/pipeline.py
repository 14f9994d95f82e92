"""Measures the speed of the pipeline, part by part, and compares it with tools for a single machine.

    python -m benchmarks.pipeline [ROWS_IN_MILLIONS]...          (default: 1 10 40)
    python -m benchmarks.pipeline --parts reading,questions 1

Each figure is a ratio of two measurements that alternate in the same run, the best of three warm rounds each, because
absolute times mean little on a shared machine. Each ratio is printed with its target. DuckDB, Polars and pandas read
the same files of the lake, and their answers are compared with ours.

Results: docs/benchmarks/pipeline.md.
"""

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.history import gaps, keyed, profile, stream, synthetic
from benchmarks.history.rivals import RIVALS, Files, Rival
from routebook.store.embedded import EmbeddedStore
from routebook_pipeline.answers.catalogue import QUESTIONS, Question, RowSelection
from routebook_pipeline.answers.computation import AnswerContext, answer, collect_report_data, compute, history_extent
from routebook_pipeline.answers.coverage import ResolvedWindow
from routebook_pipeline.answers.daily import refresh
from routebook_pipeline.history import DAY_MS, DEFAULTS, History, Instant, Window
from routebook_pipeline.lake.commit import commit
from routebook_pipeline.lake.ingest import ingest
from routebook_pipeline.lake.maintenance import snapshot
from routebook_pipeline.lake.parsing import parse
from routebook_pipeline.lake.reading import history_for
from routebook_pipeline.lake.snapshots import build_days
from routebook_pipeline.lake.tables import Lake
from routebook_pipeline.report.page import render
from routebook_pipeline.schemas import CHANGES, PULSES
from routebook_pipeline.session import build_session
from routebook_pipeline.source.data_source import register
from routebook_pipeline.times import day_of
from routebook_pipeline.transforms import availability, heartbeat_gaps, routes

ROUNDS = 3
STREAM_ENTRIES = 1_000_000
SMALL_BATCH = 1_000
RAW_GAPS = 6_000_000
SMALL_ROUNDS = 12
"""More rounds for jobs that take tenths of a second, since Java is slow in the first ones."""
URL_ENV = "ROUTEBOOK_REDIS_URL"
PARTS = ("reading", "profile", "questions", "answers", "days", "keys", "gaps", "snapshots")
QUESTION_S, ANOMALIES_S, REPORT_S = 2.0, 5.0, 20.0
"""Targets for one million rows on two cores, in seconds. They are absolute: measure them on a quiet machine."""
LISTS, TOP = ("route", "route-diff", "events"), 1_000
YEAR_S = 600.0
YEAR_DAYS = 365


@dataclass
class Results:
    missed: list[str] = field(default_factory=list)

    def ratio(self, what: str, value: float, target: float | None, *, most: bool) -> None:
        """`most`: the target is an upper limit, otherwise a lower one. Without a target the ratio is only printed."""
        verdict = ""
        if target is not None:
            is_met = value <= target if most else value >= target
            verdict = f"  ({'at most' if most else 'at least'} {target:g}: {'met' if is_met else 'NOT MET'})"
            if not is_met:
                self.missed.append(what)
        print(f"  {what:<66} {value:7.2f}{verdict}", flush=True)


def everything(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


# -- from the store to the lake


def read_source(spark: SparkSession, after_version: int = 0, *, decoded: bool = False) -> DataFrame:
    """The entries after this version, from the store that the environment names. `decoded`: as an ingest reads them."""
    options = {"entries_per_partition": "250000", "decoded": str(decoded).lower()}
    if after_version:
        options["start_id"] = f"{synthetic.FIRST_MS + after_version}-{after_version}"
    return spark.read.format("routebook").options(**options).load()


def measure_reading(spark: SparkSession, folder: Path, results: Results) -> None:
    with EmbeddedStore(None, port=0) as store:
        os.environ[URL_ENV] = store.url
        print(f"\nFrom the store to the lake: {STREAM_ENTRIES:,} entries", flush=True)
        stream.fill(store.url, STREAM_ENTRIES)
        register(spark)

        source = partial(read_source, spark)
        assert stream.loop(store.url) == STREAM_ENTRIES
        assert source().count() == STREAM_ENTRIES

        lakes = iter(range(100))

        def ingested() -> None:
            lake = Lake(str(folder / f"lake-{next(lakes)}"), synthetic.NAMESPACE)
            ingest(spark, lake, once=True, on_event=lambda _: None, stop=threading.Event())
            assert lake.changes.pin().record("changes") == STREAM_ENTRIES

        ingested()
        loop_s, read_s, from_text_s, parsed_s, ingest_s = stream.best_of(
            ROUNDS,
            lambda: stream.loop(store.url),
            lambda: everything(source()),
            lambda: everything(parse(source(), synthetic.NAMESPACE, 0, 0)),
            lambda: everything(parse(source(decoded=True), synthetic.NAMESPACE, 0, 0)),
            ingested,
        )
        for what, seconds in (
            ("client loop of XRANGE", loop_s),
            ("source", read_s),
            ("parsed by Spark", from_text_s),
            ("decoded and parsed", parsed_s),
            ("in the lake", ingest_s),
        ):
            print(f"    {what:<24} {seconds:6.2f} s  {STREAM_ENTRIES / seconds / 1000:6.0f} k entries/s")
        results.ratio("read through the source, against the client loop (rate)", loop_s / read_s, 0.5, most=False)
        results.ratio("read and parsed, against read alone (rate)", read_s / parsed_s, 0.3, most=False)
        results.ratio("the same without decoding where it is read", read_s / from_text_s, None, most=False)
        results.ratio("store -> committed, against the client loop (rate)", loop_s / ingest_s, 0.15, most=False)

        lake = Lake(str(folder / "lake-0"), synthetic.NAMESPACE)
        in_lake = sum(file.size for file in lake.changes.pin().files)
        in_store = stream.bytes_in_store(store.url)
        print(f"    {in_store / 1e6:.0f} MB in the store, {in_lake / 1e6:.0f} MB in the lake")
        results.ratio("size in the lake, against the store", in_lake / in_store, 0.15, most=True)
        _measure_small_batches(spark, folder, store.url, lake, partial(source, decoded=True), results)


def _measure_small_batches(
    spark: SparkSession, folder: Path, url: str, lake: Lake, source: Callable[[int], DataFrame], results: Results
) -> None:
    newest, empties = STREAM_ENTRIES, iter(range(100))
    nothing = spark.createDataFrame([], CHANGES).withColumn(lake.changes.partition, F.lit("2026-01-01"))

    def small() -> None:
        nonlocal newest
        stream.fill(url, SMALL_BATCH, first=newest + 1)
        done = commit(source(newest), lake.changes, ingested_ms=0)
        newest += SMALL_BATCH
        assert done is not None
        assert (done.entries, done.last) == (SMALL_BATCH, newest)

    def empty() -> None:
        """Writes no rows with the columns and the partition of the table, by Spark's own means."""
        nothing.write.partitionBy(lake.changes.partition).parquet(str(folder / f"empty-{next(empties)}"))

    small()
    empty()
    small_s, empty_s = stream.best_of(SMALL_ROUNDS, small, empty)
    print(f"    {SMALL_BATCH} entries, all in: {small_s:.2f} s; an empty write of Spark: {empty_s:.2f} s")
    results.ratio("a batch of 1,000 entries, against an empty write", small_s / empty_s, 2, most=True)


def measure_profile(spark: SparkSession, folder: Path) -> None:
    profile.measure_parsing(spark, folder, STREAM_ENTRIES, everything)
    with EmbeddedStore(None, port=0) as store:
        os.environ[URL_ENV] = store.url
        register(spark)
        stream.fill(store.url, SMALL_BATCH)
        lake = Lake(str(folder / "lake-of-small-batches"), synthetic.NAMESPACE)
        lake.changes.create()
        commit(read_source(spark), lake.changes, ingested_ms=0)
        profile.measure_small_batch(store.url, lake, partial(read_source, spark, decoded=True), everything, SMALL_BATCH)


# -- the questions, against other tools


def history_of(spark: SparkSession, lake: Lake) -> History:
    return History(lake.changes.pin().read(spark), lake.pulses.pin().read(spark))


def seats_of(history: History, window: Window) -> list[Row]:
    """With a history that has nothing derived yet, as in a command."""
    return availability.by_seat(replace(history, derived={}), window, DEFAULTS).collect()


def all_routes(history: History, instant: Instant) -> None:
    everything(routes.routes_at(replace(history, derived={}), instant))


def measure_questions(spark: SparkSession, folder: Path, millions: list[int], results: Results) -> None:
    ours: dict[int, tuple[float, float]] = {}
    for size in millions:
        rows = size * 1_000_000
        print(f"\nQuestions: {size} million rows of changes", flush=True)
        lake = Lake(str(folder / f"lake-of-{size}"), synthetic.NAMESPACE)
        synthetic.fill(spark, lake, rows)
        end = synthetic.end_of(rows)
        window, at_ms = Window(synthetic.FIRST_MS, end), end - DAY_MS // 3
        instant = Instant(ms=at_ms)
        history = history_of(spark, lake)
        files: Files = [
            (lake.changes.folder / file.path).for_spark.removeprefix("file://") for file in lake.changes.pin().files
        ]

        rivals = RIVALS if size <= 10 else ()
        _compare_answers(history, window, instant, files, rivals)
        retire_ms = DEFAULTS.retire_after_ms
        availability_jobs: list[Callable[[], object]] = [
            partial(seats_of, history, window),
            *(partial(rival.availability, files, window.start_ms, window.end_ms, retire_ms) for rival in rivals),
        ]
        route_jobs: list[Callable[[], object]] = [
            partial(all_routes, history, instant),
            *(partial(rival.routes, files, at_ms) for rival in rivals),
        ]
        for what, jobs, targets, place in (
            ("availability", availability_jobs, {"DuckDB": 5.0, "pandas": 3.5}, 0),
            ("whole route at an instant", route_jobs, {"DuckDB": 9.0, "pandas": 3.5}, 1),
        ):
            seconds = stream.best_of(ROUNDS, *jobs)
            names = ["Spark", *(rival.name for rival in rivals)]
            print(
                f"    {what}: " + ", ".join(f"{name} {spent:.2f} s" for name, spent in zip(names, seconds, strict=True))
            )
            for rival, spent in zip(rivals, seconds[1:], strict=True):
                target = targets.get(rival.name) if size == 10 else None
                results.ratio(f"{what}, {size} M, against {rival.name} (time)", seconds[0] / spent, target, most=True)
            before = ours.get(size, (0.0, 0.0))
            ours[size] = (seconds[0], before[1]) if place == 0 else (before[0], seconds[0])
    if 10 in ours and 40 in ours:
        print()
        for place, what in enumerate(("availability", "whole route at an instant")):
            results.ratio(f"{what}, 40 M against 10 M (time)", ours[40][place] / ours[10][place], 5, most=True)


def _compare_answers(history: History, window: Window, instant: Instant, files: Files, rivals: Sequence[Rival]) -> None:
    """All tools must give the same answers; otherwise their times cannot be compared."""
    seats = {
        (row.cluster, row.broker, row.broker_id): (row.up_ms, row.unplanned_ms, row.planned_ms)
        for row in seats_of(history, window)
    }
    number_of_routes = routes.routes_at(history, instant).count()
    assert instant.ms is not None
    for rival in rivals:
        rival_seats = rival.availability(files, window.start_ms, window.end_ms, DEFAULTS.retire_after_ms)
        assert rival_seats == seats, f"{rival.name} computes a different availability"
        assert rival.routes(files, instant.ms) == number_of_routes, f"{rival.name} computes different routes"
    print(
        f"    {len(seats):,} seats, {number_of_routes:,} queues of topics; the same in {1 + len(rivals)} tools",
        flush=True,
    )


def measure_answers(spark: SparkSession, folder: Path, millions: list[int], results: Results) -> None:
    """Every question at every level over the whole history, with the integrity of the history as commands print it; and
    the data of a report. Between sizes, the cost of a million rows must stay nearly the same.
    """
    smallest: dict[str, float] = {}
    for size in sorted(millions):
        print(f"\nAll questions: {size} million rows of changes", flush=True)
        context = _context(spark, folder, size * 1_000_000)
        for question in QUESTIONS.values():
            # One row for each entry or queue: only the first rows of a long history fit into the driver.
            is_list = size > 1 and question.name in LISTS
            chosen = replace(context, selection=RowSelection(top=TOP)) if is_list else context
            for level in question.levels:
                job = partial(_answer, spark, chosen, question, level)
                job()
                (seconds,) = stream.best_of(ROUNDS if size == 1 else 1, job)
                target = (ANOMALIES_S if question.name == "anomalies" else QUESTION_S) if size == 1 else None
                _report_size(f"{question.name} by {level}", size, seconds, target, smallest, results)
        (seconds,) = stream.best_of(1, partial(_report, spark, context))
        _report_size("a report", size, seconds, REPORT_S if size == 1 else None, smallest, results)


def _report_size(
    what: str, size: int, seconds: float, target: float | None, smallest: dict[str, float], results: Results
) -> None:
    results.ratio(f"{what}, {size} M (seconds)", seconds, target, most=True)
    # A million rows take little longer than planning does, so the comparison begins with the next size.
    if size > 1 and what in smallest:
        results.ratio(
            f"{what}, {size} M (seconds per million, against less)", seconds / size / smallest[what], 1.3, most=True
        )
    elif size > 1:
        smallest[what] = seconds / size


def _answer(spark: SparkSession, context: AnswerContext, question: Question, level: str) -> None:
    compute(answer(spark, context, question, level))


def _report(spark: SparkSession, context: AnswerContext) -> None:
    render(collect_report_data(spark, context))


def _context(spark: SparkSession, folder: Path, rows: int, rows_a_day: int = synthetic.ROWS_A_DAY) -> AnswerContext:
    lake = Lake(str(folder / f"lake-of-{rows}-at-{rows_a_day}"), synthetic.NAMESPACE)
    if not lake.changes.exists():
        synthetic.fill(spark, lake, rows, rows_a_day)
    window = Window(synthetic.FIRST_MS, synthetic.end_of(rows, rows_a_day))
    return AnswerContext(lake, history_extent(lake, None), ResolvedWindow(window, window.end_ms))


def measure_days(spark: SparkSession, folder: Path, results: Results, days: int) -> None:
    """Snapshots and stored answers of a year with a million rows, or of fewer of its days."""
    rows_a_day = 2_740
    rows = rows_a_day * days // 10 * 10
    print(f"\nSnapshots and stored answers of {days} days, {rows:,} rows", flush=True)
    context = _context(spark, folder, rows, rows_a_day)
    end_ms = context.resolved.window.end_ms // DAY_MS * DAY_MS
    windows = [Window(end_ms - number * DAY_MS, end_ms - (number - 1) * DAY_MS) for number in range(days, 0, -1)]
    marks = [(time.perf_counter(), stream.processor_seconds())]
    built = build_days(spark, context.lake, [day_of(day.start_ms) for day in windows])
    marks.append((time.perf_counter(), stream.processor_seconds()))
    computed = refresh(spark, context.lake, context.extent, iter(windows))
    marks.append((time.perf_counter(), stream.processor_seconds()))
    parts = ((f"{len(built)} snapshots", marks[0], marks[1]), (f"{computed:,} answers", marks[1], marks[2]))
    for what, before, after in parts:
        print(f"    {what}: {after[0] - before[0]:.1f} s, {after[1] - before[1]:.1f} s of the processor", flush=True)
    target = YEAR_S if days == YEAR_DAYS else None
    results.ratio(f"stored answers of {days} days (seconds)", marks[2][0] - marks[0][0], target, most=True)


def measure_keys(spark: SparkSession, folder: Path, results: Results) -> None:
    rows = 10_000_000
    print("\nNumeric keys and one order column, against names and structs: 10 million rows", flush=True)
    lake = Lake(str(folder / "lake-of-10"), synthetic.NAMESPACE)
    if not lake.changes.exists():
        synthetic.fill(spark, lake, rows)
    changes = history_of(spark, lake).changes
    pairs = (
        ("route", keyed.route_by_keys, keyed.route_by_names, 0.9),
        ("availability", keyed.availability_by_keys, keyed.availability_by_names, None),
    )
    for what, by_keys, by_names, target in pairs:
        everything(by_keys(changes))
        everything(by_names(changes))
        keys_s, names_s = stream.best_of(
            ROUNDS, lambda job=by_keys: everything(job(changes)), lambda job=by_names: everything(job(changes))
        )
        print(f"    {what}: {keys_s:.2f} s by keys, {names_s:.2f} s by names")
        results.ratio(f"{what} by keys, against by names (time)", keys_s / names_s, target, most=True)


def measure_gaps(spark: SparkSession, folder: Path, results: Results) -> None:
    """Exact percentiles of each seat's gaps, and the question, which uses the histograms of the stream `pulse`."""
    print(f"\nHeartbeat gaps: {RAW_GAPS:,} of {gaps.SEATS:,} seats", flush=True)
    raw, counted = folder / "gaps", folder / "pulses"
    gaps.raw(spark, RAW_GAPS).write.parquet(str(raw))
    gaps.pulses(gaps.raw(spark, RAW_GAPS)).write.parquet(str(counted))
    pulses = spark.read.schema(PULSES).parquet(str(counted))
    history = History(spark.createDataFrame([], CHANGES), pulses)
    window = Window(synthetic.FIRST_MS, synthetic.FIRST_MS + 30 * DAY_MS)
    ours = gaps.with_spark(spark, raw)
    for name, rival in gaps.RIVALS.items():
        assert gaps.same(ours, rival(raw)), f"{name} has other percentiles"
    jobs: list[Callable[[], object]] = [
        partial(gaps.with_spark, spark, raw),
        *(partial(rival, raw) for rival in gaps.RIVALS.values()),
        lambda: heartbeat_gaps.by_seat(history, window).collect(),
    ]
    spark_s, *rivals_s, question_s = stream.best_of(ROUNDS, *jobs)
    others = ", ".join(f"{name} {spent:.2f} s" for name, spent in zip(gaps.RIVALS, rivals_s, strict=True))
    print(f"    percentiles of the raw gaps: Spark {spark_s:.2f} s, {others}")
    print(f"    the question, over {pulses.count():,} rows of histograms: {question_s:.2f} s")
    results.ratio("percentiles of raw gaps, against DuckDB (time)", spark_s / rivals_s[0], None, most=True)
    results.ratio("the question, against percentiles of raw gaps (time)", question_s / spark_s, None, most=True)


def measure_snapshots(spark: SparkSession, folder: Path, results: Results) -> None:
    """One topic at an instant of the last day, after a history of three days and of thirty."""
    print("\nOne topic at an instant, from a snapshot", flush=True)
    rows_a_day, jobs = 100_000, []
    for days in (3, 30):
        rows = days * rows_a_day
        lake = Lake(str(folder / f"lake-of-{days}-days"), synthetic.NAMESPACE)
        synthetic.fill(spark, lake, rows, rows_a_day)
        snapshot(spark, lake)
        instant = Instant(ms=synthetic.end_of(rows, rows_a_day) - DAY_MS // 3)

        def job(lake: Lake = lake, instant: Instant = instant) -> None:
            routes.routes_at(history_for(spark, lake, instant), instant, "topic-00007").collect()

        job()
        jobs.append(job)
    few_s, many_s = stream.best_of(ROUNDS, *jobs)
    print(f"    after 3 days {few_s:.2f} s, after 30 days {many_s:.2f} s")
    results.ratio("one topic, 30 days of history against 3 (time)", many_s / few_s, 1.5, most=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("millions", nargs="*", type=int, default=[1, 10, 40])
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--days", type=int, default=YEAR_DAYS, help="days of the part `days`")
    chosen = parser.parse_args()
    parts = chosen.parts.split(",")
    results = Results()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="routebook-bench-") as name:
        folder = Path(name)
        started = time.perf_counter()
        spark = build_session(overrides={"spark.local.dir": str(folder / "spark")}, name="routebook-bench")
        session_s = time.perf_counter() - started
        spark.range(1).select(F.sum("id")).collect()
        first_s = time.perf_counter() - started - session_s
        print(f"  Spark {spark.version}: session {session_s:.1f} s, first job {first_s:.1f} s")
        try:
            if "reading" in parts:
                measure_reading(spark, folder, results)
            if "profile" in parts:
                measure_profile(spark, folder)
            if "questions" in parts:
                measure_questions(spark, folder, chosen.millions, results)
            if "answers" in parts:
                measure_answers(spark, folder, chosen.millions, results)
            if "days" in parts:
                measure_days(spark, folder, results, chosen.days)
            if "keys" in parts:
                measure_keys(spark, folder, results)
            if "gaps" in parts:
                measure_gaps(spark, folder, results)
            if "snapshots" in parts:
                measure_snapshots(spark, folder, results)
        finally:
            spark.stop()
    for missed in results.missed:
        print(f"not met: {missed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
