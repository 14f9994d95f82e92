"""`python -m routebook` and the command `routebook`."""

import os
import signal


def main() -> None:
    _let_the_first_process_be_ended()
    # After it: these modules take a while to import.
    from routebook.cli.main import main as run  # noqa: PLC0415

    run()


def _let_the_first_process_be_ended() -> None:
    """The kernel keeps signals without a handler from the process with number 1, which is what a container's command
    is: one that is still starting, or has no handler of its own, could only be killed. This does what the kernel does
    to others.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))


if __name__ == "__main__":
    main()
