"""`routebook pipeline package`: what `spark-submit` is given. Starts no Spark."""

import shutil

import click

from routebook_pipeline.cli.output import file_for


@click.command("package")
@click.option("--out", required=True, metavar="FILE", help="The zip for --py-files; its folder is made.")
def command(out: str) -> int:
    """Write this package as a zip for executors, and print the path of the program that `spark-submit` runs.

    \b
    spark-submit --py-files routebook.zip "$(routebook pipeline package --out routebook.zip)" run integrity --out a.json
    """
    from routebook_pipeline.local_files import PROGRAM, zip_own_package

    with file_for(out) as fresh:
        shutil.copyfile(zip_own_package(), fresh)
    click.echo(PROGRAM)
    return 0
