"""Several cases of a test at once, each still a test of its own: JVMs spend most of a life waiting."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

AT_ONCE = 3

Outcomes = dict[str, "Future[None]"]


@contextmanager
def side_by_side(request: pytest.FixtureRequest, parameter: str, live: Callable[[str], None]) -> Iterator[Outcomes]:
    """Calls `live` with each value of the parameter that this module's selected tests have. The test itself is
    `outcomes[value].result()`: what happened, happens there.
    """
    chosen = [
        str(item.callspec.params[parameter])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec")
        if parameter in item.callspec.params
    ]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix=parameter) as pool:
        outcomes = {value: pool.submit(live, value) for value in dict.fromkeys(chosen)}
        try:
            yield outcomes
        finally:
            pool.shutdown(cancel_futures=True)
