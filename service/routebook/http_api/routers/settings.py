"""Effective settings, where each comes from, and changing one for all workers."""

from typing import Annotated

from fastapi import APIRouter, Path

from routebook.http_api.callers import AdministratorOf
from routebook.http_api.dependencies import LiveSettingsOf, RegistryOf, Seen
from routebook.http_api.openapi import ADMIN, BODY, READ, STORE, answers_with
from routebook.http_api.schemas.operation import Setting, SettingGiven, Settings
from routebook.http_api.schemas.table import Written

router = APIRouter(tags=["operation"])


@router.get("/v1/settings", summary="Show the settings", responses=answers_with(*READ, *ADMIN), dependencies=[Seen])
async def list_settings(live_settings: LiveSettingsOf, caller: AdministratorOf) -> Settings:
    """As they are in force on this worker; secrets masked."""
    del caller
    rows = live_settings.describe()
    return Settings(settings=[Setting(key=key, value=value, origin=origin) for key, value, origin in rows])


@router.put("/v1/settings/{key}", summary="Change a setting", responses=answers_with(*BODY, *ADMIN, *STORE))
async def change_setting(
    key: Annotated[str, Path(description="One that changes at run time.", examples=["hold_percent"])],
    given: SettingGiven,
    registry: RegistryOf,
    caller: AdministratorOf,
) -> Written:
    """Lives in the store, reaches all workers within a second, survives restarts. A flag or variable of a
    worker is stronger.
    """
    return Written(version=await registry.change_setting(key, given.text, caller))
