"""Identities: listing, creating and revoking them. Only the answer to a creation contains credentials."""

from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from routebook.errors import InvalidInputError
from routebook.http_api import problems
from routebook.http_api.callers import AdminDep
from routebook.http_api.dependencies import WAIT_FOR_MIN_VERSION, DryRunFlag, RegistryDep
from routebook.http_api.openapi import ADMIN, BODY, INPUT, READ, STORE, not_found, problem_responses
from routebook.http_api.schemas import DryRunResult, RequestBody, ResponseBody, Version, WriteResult
from routebook.model.identity import Credentials, Identity, IdentityRecord, Role
from routebook.registry.dry_runs import plan_identity_revocation
from routebook.registry.identities import MAX_VALID_MS, NewCredentials

router = APIRouter(tags=["operation"], prefix="/v1/identities")

_ROLE = Field(
    description="read, broker, operator or admin; each includes the permissions of those before it.",
    examples=["operator"],
)
_PREFIXES = "An empty list covers all."


class IdentityInput(RequestBody):
    """A new identity. Its policy lists prefixes of names."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "role": "operator", "topics": ["ci-"]}]})

    name: str = Field(description="1 to 64 of A-Z a-z 0-9 . _ -", examples=["ci"])
    role: str = _ROLE
    clusters: list[str] = Field(default_factory=list, description=f"Prefixes of cluster names. {_PREFIXES}")
    topics: list[str] = Field(default_factory=list, description=f"Prefixes of topics. {_PREFIXES}")
    brokers: list[str] = Field(default_factory=list, description=f"Prefixes of broker names. {_PREFIXES}")
    valid_for_ms: int | None = Field(None, ge=1, le=MAX_VALID_MS, description="Null = it does not expire.")
    access_key: str = Field("", description="Access key of RocketMQ's signatures, if it is to sign.")
    secret: str = Field("", description="Secret of RocketMQ's signatures. Empty with an access key = one is made.")
    certificate: str = Field("", description="A name in the client's certificate, if it is to use one.")
    replace: bool = Field(False, description="Replace an identity of that name, with all its credentials.")

    def as_identity(self) -> Identity:
        return Identity(self.name, Role.parse(self.role), tuple(self.clusters), tuple(self.topics), tuple(self.brokers))


class IdentityResult(ResponseBody):
    """An identity without its credentials."""

    name: str = Field(examples=["ci"])
    role: str = _ROLE
    clusters: list[str]
    topics: list[str]
    brokers: list[str]
    has_token: bool
    access_key: str | None = Field(examples=[None])
    certificate: str | None = Field(examples=[None])
    created_ms: int = Field(description="Time on the store's clock.", examples=[1763475600000])
    changed_ms: int = Field(examples=[1763475600000])
    expires_ms: int | None = Field(description="Null = never.", examples=[None])

    @classmethod
    def of(cls, record: IdentityRecord) -> Self:
        identity, credentials = record.identity, record.credentials
        return cls(
            name=identity.name,
            role=identity.role.label,
            clusters=list(identity.clusters),
            topics=list(identity.topics),
            brokers=list(identity.brokers),
            has_token=bool(credentials.token_sha256),
            access_key=credentials.access_key or None,
            certificate=credentials.certificate or None,
            created_ms=record.created_ms,
            changed_ms=record.changed_ms,
            expires_ms=record.expires_ms or None,
        )


class IdentityList(ResponseBody):
    identities: list[IdentityResult] = Field(description="Sorted by name.")


class CreatedIdentity(ResponseBody):
    """The credentials of a new identity. They are shown only here: the store has no more than a hash of the token."""

    name: str = Field(examples=["ci"])
    token: str = Field(examples=["rb_…"])
    access_key: str | None = Field(examples=[None])
    secret: str | None = Field(examples=[None])
    version: Version

    @classmethod
    def of(cls, name: str, created: NewCredentials) -> Self:
        return cls(
            name=name,
            token=created.token,
            access_key=created.access_key or None,
            secret=created.secret or None,
            version=created.version,
        )


@router.get(
    "", summary="List identities", responses=problem_responses(*READ, *ADMIN), dependencies=[WAIT_FOR_MIN_VERSION]
)
async def list_identities(registry: RegistryDep, caller: AdminDep) -> IdentityList:
    """Names, roles and policies, without credentials. There are at most 1,000, so the list has no pages."""
    del caller
    return IdentityList(identities=[IdentityResult.of(record) for record in registry.identities.all()])


@router.post("", summary="Create an identity", responses=problem_responses(*BODY, *ADMIN, *STORE, problems.CONFLICT))
async def create_identity(body: IdentityInput, registry: RegistryDep, caller: AdminDep) -> CreatedIdentity:
    """The answer contains its token, and never again. It is valid on all workers within a second.

    The first identity with the role `broker` makes registrations and heartbeats demand such an identity.
    """
    if body.secret and not body.access_key:
        raise InvalidInputError("access_key", body.access_key, "an access key together with the secret")
    created = await registry.identities.create(
        body.as_identity(),
        caller,
        credentials=Credentials(access_key=body.access_key, secret=body.secret, certificate=body.certificate),
        valid_for_ms=body.valid_for_ms or 0,
        replaces=body.replace,
    )
    return CreatedIdentity.of(body.name, created)


@router.delete(
    "/{name}", summary="Revoke an identity", responses=problem_responses(*INPUT, *ADMIN, *STORE, not_found("identity"))
)
async def revoke_identity(
    name: Annotated[str, Path(description="Name of an identity.", examples=["ci"])],
    registry: RegistryDep,
    caller: AdminDep,
    dry_run: DryRunFlag = False,
) -> WriteResult | DryRunResult:
    """Its credentials are refused on all workers within a second. Requests that are being answered continue."""
    if dry_run:
        return DryRunResult.of(plan_identity_revocation(registry, name))
    return WriteResult(version=await registry.identities.revoke(name, caller))
