"""One self-contained page of all answers."""
