"""What all schemas share."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Given(BaseModel):
    """A body from outside: a field that is not known is a mistake to hear about, not to pass over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """A body of ours."""

    model_config = ConfigDict(frozen=True)


Version = Annotated[int, Field(description="The version of the table that holds this change.", examples=[42])]
NextCursor = Annotated[
    str | None, Field(description="Give it as `cursor` to read on; null at the end.", examples=[None])
]


class Written(Answer):
    """A change was made, or was there already; this worker has seen `version`."""

    version: Version


class Touched(Answer):
    """How much a change reached."""

    count: int = Field(description="The number of topic entries it was about.", examples=[2])
    version: Version
