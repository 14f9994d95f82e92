"""A folder has one name for people, and a form for each library that opens it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from routebook_pipeline.errors import UnreachableError, WrongUsageError
from routebook_pipeline.lake.folders import Folder, check_spark_reaches
from routebook_pipeline.lake.tables import Lake, Position
from routebook_pipeline.lake.transactions import WriteAttempt
from tests.pipeline.lake.streams import entries, frame


@pytest.mark.parametrize(
    ("given", "spark", "deltalake"),
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
def test_each_library_gets_its_own_form(given: str, spark: str, deltalake: str) -> None:
    folder = Folder.of(given)
    assert (folder.for_spark, folder.for_deltalake) == (spark, deltalake)


def test_pattern_characters_are_escaped_for_sparks_readers() -> None:
    assert Folder.of("/srv/[a]{b}*?").for_spark_reader == r"file:///srv/\[a\]\{b\}\*\?"


def test_arrow_gets_names_unchanged() -> None:
    """It connects only when a file is accessed."""
    assert (Folder.of("gs://history/a b/[c]") / "d").for_arrow[1] == "history/a b/[c]/d"


def test_a_relative_path_is_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Folder.of("lake").uri == str(tmp_path / "lake")
    assert Folder.of("~/lake").uri == str(tmp_path / "home" / "lake")


@pytest.mark.parametrize(
    "given", ["", "s3://", "s3:/history", "s3:history", "file://elsewhere/srv", "file:srv", "ftp://a/b", "redis://a"]
)
def test_a_refused_folder_names_the_allowed_forms(given: str) -> None:
    with pytest.raises(WrongUsageError, match="Allowed: a path, or s3://"):
        Folder.of(given)


@pytest.mark.parametrize("given", ["/srv/a%20b", "s3://history/a%2Fb", "/srv/a\\b", "file:///srv/a%2520b"])
def test_a_path_that_deltalake_would_misread_is_refused(given: str) -> None:
    with pytest.raises(WrongUsageError, match="Choose a path without"):
        Lake(given, "ns").changes.exists()


@pytest.mark.parametrize("name", ["a b", "[x]{y}*", "ä#?", "50%", "it's", "@"])
def test_a_lake_can_have_any_other_name(tmp_path: Path, name: str) -> None:
    table = Lake(str(tmp_path / name), "ns").changes
    table.create()
    assert (tmp_path / name / "ns" / "changes" / "_delta_log").is_dir()
    assert table.exists()
    assert len(table.pin().files) == 0


def test_a_file_address_and_its_path_are_the_same_lake(tmp_path: Path) -> None:
    lake = Lake((tmp_path / "my lake").as_uri(), "ns")
    lake.changes.create()
    assert Lake(str(tmp_path / "my lake"), "ns").changes.exists()


@pytest.mark.parametrize("namespace", [".", "..", "...", ".a", "-_"])
def test_a_namespace_has_a_folder_in_its_lake_whatever_its_name(tmp_path: Path, namespace: str) -> None:
    table = Lake(str(tmp_path / "lake"), namespace).changes
    table.create()
    assert table.pin().position is None
    assert [folder.name for folder in tmp_path.iterdir()] == ["lake"]
    assert len(list((tmp_path / "lake").iterdir())) == 1


@pytest.mark.parametrize(
    ("address", "coordinates"),
    [
        ("s3://history/lake", "org.apache.hadoop:hadoop-aws"),
        ("gs://history/lake", "org.apache.hadoop:hadoop-gcp"),
        ("abfss://box@account.dfs.core.windows.net/lake", "org.apache.hadoop:hadoop-azure"),
    ],
)
def test_the_missing_connector_of_spark_is_named(spark: SparkSession, address: str, coordinates: str) -> None:
    """pip installs Spark without connectors. The version is that of Hadoop, read from the running Spark."""
    wanted = rf"spark\.jars\.packages={coordinates}:3\.\d+\.\d+`"
    with pytest.raises(UnreachableError, match=wanted) as raised:
        WriteAttempt(Lake(address, "ns").changes).write(frame(spark, entries(1, 2)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("address", ["/srv/lake", "hdfs://head:8020/lake"])
def test_folders_and_hadoop_need_no_connector(spark: SparkSession, address: str) -> None:
    check_spark_reaches(spark, Folder.of(address))


def test_positions_rise_across_eras() -> None:
    assert Position.of(Position(3, 7).ord) == Position(3, 7)
    assert Position(1, 0).ord > Position(0, (1 << 48) - 1).ord
