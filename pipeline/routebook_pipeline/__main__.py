"""`python -m routebook_pipeline`: the pipeline's commands without the service's command line."""

import sys

from routebook_pipeline.cli.main import run

if __name__ == "__main__":
    sys.exit(run("python -m routebook_pipeline"))
