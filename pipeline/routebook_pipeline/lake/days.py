"""UTC days, as the partitions spell them."""

from datetime import date, timedelta

from routebook_pipeline.errors import WrongUsageError

_EPOCH = date(1970, 1, 1)


def start_ms(day: str) -> int:
    """The midnight that the day begins with."""
    try:
        return (date.fromisoformat(day) - _EPOCH).days * 86_400_000
    except ValueError as error:
        raise WrongUsageError(f"{day!r} is no day. Allowed: days as 2026-11-18, in UTC.") from error


def days_between(first: str, last: str) -> list[str]:
    """Both included."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return [(begin + timedelta(days=number)).isoformat() for number in range((end - begin).days + 1)]
