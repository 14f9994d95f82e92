"""Paging of lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routebook.errors import InvalidInputError
from routebook.http_api.dependencies import page_of


@given(names=st.sets(st.text(min_size=1)), limit=st.integers(1, 7))
def test_pages_together_are_the_list(names: set[str], limit: int) -> None:
    pages: list[str] = []
    cursor = None
    while True:
        part, cursor = page_of(limit, cursor).of(names)
        pages += part
        if cursor is None:
            break
    assert pages == sorted(names)


def test_paging_continues_after_a_name_that_was_removed() -> None:
    _, cursor = page_of(2).of(["a", "b", "c", "d"])
    assert page_of(2, cursor).of(["a", "c", "d"]) == (["c", "d"], None)


@pytest.mark.parametrize("cursor", ["!", "é", "a", "_" * 3])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInputError):
        page_of(2, cursor)
