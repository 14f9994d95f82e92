"""`routebook pipeline package`: the files that `spark-submit` needs. Does not start Spark."""

import shutil

import click

from routebook_pipeline.cli.output import output_file


@click.command("package", short_help="Write the files that `spark-submit` needs.")
@click.option("--out", required=True, metavar="FILE", help="The zip for --py-files; missing folders are created.")
def command(out: str) -> int:
    """Write this package as a zip for executors, and print the path of the program that `spark-submit` runs.

    \b
    spark-submit --py-files routebook.zip "$(routebook pipeline package --out routebook.zip)" run integrity --out a.json
    """
    from routebook_pipeline.local_files import PROGRAM, zip_own_package

    with output_file(out) as temporary:
        shutil.copyfile(zip_own_package(), temporary)
    click.echo(PROGRAM)
    return 0
