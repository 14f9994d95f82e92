"""`python -m routebook_pipeline`: the same commands without the service's package."""

from routebook_pipeline.cli import pipeline

if __name__ == "__main__":
    pipeline(prog_name="python -m routebook_pipeline")
