"""Runs several cases of a test in parallel, because Java processes spend most of their time waiting."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

CASES_AT_ONCE = 3

Outcomes = dict[str, "Future[None]"]


@contextmanager
def run_in_parallel(request: pytest.FixtureRequest, parameter: str, run: Callable[[str], None]) -> Iterator[Outcomes]:
    """Calls `run` with each value that the parameter has in the selected tests of this module. A test then calls
    `outcomes[value].result()`, which raises what `run` raised.
    """
    chosen = [
        str(item.callspec.params[parameter])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
        if parameter in item.callspec.params
    ]
    with ThreadPoolExecutor(CASES_AT_ONCE, thread_name_prefix=parameter) as pool:
        outcomes = {value: pool.submit(run, value) for value in dict.fromkeys(chosen)}
        try:
            yield outcomes
        finally:
            pool.shutdown(cancel_futures=True)
