"""Lists in pages."""

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


def test_a_page_goes_on_behind_its_last_name_when_that_has_gone() -> None:
    _, cursor = page_of(2).of(["a", "b", "c", "d"])
    assert page_of(2, cursor).of(["a", "c", "d"]) == (["c", "d"], None)


@pytest.mark.parametrize("cursor", ["!", "é", "a", "_" * 3])
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInputError):
        page_of(2, cursor)
