"""Every setting of Routebook: read once at start, checked, handed down."""

from routebook.settings.fields import Settings
from routebook.settings.live import LiveSettings
from routebook.settings.loading import Loaded, Origin, Profile, load

__all__ = ["LiveSettings", "Loaded", "Origin", "Profile", "Settings", "load"]
