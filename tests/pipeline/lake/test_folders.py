"""A place has one name for people, and a spelling for each of those that open it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import UnreachableError, WrongUsageError
from routebook_pipeline.lake.folders import Folder, check_spark_reaches
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.lake.transactions import WriteAttempt
from tests.pipeline.lake.streams import entries, frame


@pytest.mark.parametrize(
    ("given", "spark", "wheel"),
    [
        ("/srv/lake/", "file:///srv/lake", "/srv/lake"),
        ("/srv/a b [c]", "file:///srv/a b [c]", "/srv/a b [c]"),
        ("file:///srv/a%20b", "file:///srv/a b", "/srv/a b"),
        ("file:/srv/lake", "file:///srv/lake", "/srv/lake"),
        ("file://localhost/srv/lake", "file:///srv/lake", "/srv/lake"),
        ("s3://history/lake/", "s3a://history/lake", "s3://history/lake"),
        ("s3a://history", "s3a://history", "s3a://history"),
        ("s3://history/a b/[c]#?", "s3a://history/a b/[c]#?", "s3://history/a%20b/%5Bc%5D%23%3F"),
        ("gs://history/ä", "gs://history/ä", "gs://history/%C3%A4"),
        (
            "abfss://box@account.dfs.core.windows.net/a b",
            "abfss://box@account.dfs.core.windows.net/a b",
            "abfss://box@account.dfs.core.windows.net/a%20b",
        ),
        ("hdfs://head:8020/lake", "hdfs://head:8020/lake", "hdfs://head:8020/lake"),
    ],
)
def test_each_reader_has_its_own_spelling(given: str, spark: str, wheel: str) -> None:
    folder = Folder.of(given)
    assert (folder.for_spark, folder.for_wheel) == (spark, wheel)


def test_what_spark_reads_is_no_pattern() -> None:
    assert Folder.of("/srv/[a]{b}*?").for_spark_to_read == r"file:///srv/\[a\]\{b\}\*\?"


def test_arrow_is_given_the_names_as_they_are() -> None:
    """It connects when it is asked for something, and not before."""
    assert (Folder.of("gs://history/a b/[c]") / "d").for_arrow[1] == "history/a b/[c]/d"


def test_a_relative_folder_is_below_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Folder.of("lake").uri == str(tmp_path / "lake")
    assert Folder.of("~/lake").uri == str(tmp_path / "home" / "lake")


@pytest.mark.parametrize(
    "given", ["", "s3://", "s3:/history", "s3:history", "file://elsewhere/srv", "file:srv", "ftp://a/b", "redis://a"]
)
def test_what_is_no_place_is_refused_with_what_is(given: str) -> None:
    with pytest.raises(WrongUsageError, match="Allowed: a folder, or s3://"):
        Folder.of(given)


@pytest.mark.parametrize("given", ["/srv/a%20b", "s3://history/a%2Fb", "/srv/a\\b", "file:///srv/a%2520b"])
def test_a_lake_is_not_kept_where_the_wheel_would_look_elsewhere(given: str) -> None:
    with pytest.raises(WrongUsageError, match="Choose a name without"):
        Lake(given, "ns").changes.exists()


@pytest.mark.parametrize("name", ["a b", "[x]{y}*", "ä#?", "50%", "it's", "@"])
def test_a_lake_can_be_kept_under_any_other_name(tmp_path: Path, name: str) -> None:
    table = Lake(str(tmp_path / name), "ns").changes
    table.make()
    assert (tmp_path / name / "ns" / "changes" / "_delta_log").is_dir()
    assert table.exists()
    assert table.pin().files == []


def test_an_address_of_a_file_and_its_path_are_one_lake(tmp_path: Path) -> None:
    lake = Lake((tmp_path / "my lake").as_uri(), "ns")
    lake.changes.make()
    assert Lake(str(tmp_path / "my lake"), "ns").changes.exists()


@pytest.mark.parametrize("namespace", [".", "..", "...", ".a", "-_"])
def test_a_namespace_has_a_folder_in_its_lake_whatever_its_name(tmp_path: Path, namespace: str) -> None:
    table = Lake(str(tmp_path / "lake"), namespace).changes
    table.make()
    assert table.pin().position is None
    assert [folder.name for folder in tmp_path.iterdir()] == ["lake"]
    assert len(list((tmp_path / "lake").iterdir())) == 1


@pytest.mark.parametrize(
    ("place", "coordinates"),
    [
        ("s3://history/lake", "org.apache.hadoop:hadoop-aws"),
        ("gs://history/lake", "org.apache.hadoop:hadoop-gcp"),
        ("abfss://box@account.dfs.core.windows.net/lake", "org.apache.hadoop:hadoop-azure"),
    ],
)
def test_a_spark_without_connector_is_told_what_to_give(spark: SparkSession, place: str, coordinates: str) -> None:
    """As pip installs it. The version is that of the rest of Hadoop, found where Spark runs."""
    wanted = rf"spark\.jars\.packages={coordinates}:3\.\d+\.\d+`"
    with pytest.raises(UnreachableError, match=wanted) as raised:
        WriteAttempt(Lake(place, "ns").changes).write(frame(spark, entries(1, 2)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("place", ["/srv/lake", "hdfs://head:8020/lake"])
def test_folders_and_hadoop_need_no_connector(spark: SparkSession, place: str) -> None:
    check_spark_reaches(spark, Folder.of(place))


def test_places_are_rising_across_eras() -> None:
    assert Position.of(Position(3, 7).ord) == Position(3, 7)
    assert Position(1, 0).ord > Position(0, (1 << 48) - 1).ord
