"""`python -m routebook` and the command `routebook`."""

from routebook.cli.main import main

if __name__ == "__main__":
    main()
