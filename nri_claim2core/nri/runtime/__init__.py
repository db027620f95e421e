"""The runtime end of NRI: drives plugins as containerd and CRI-O of several releases do.

Start at `endpoint.EmbeddedRuntime`; `profiles_table` says what differs between releases,
`lifecycle` which events a call causes, `adjust`, `updates` and `owners` how the wishes of
several plugins become one. Nothing here is imported by the plugin end.
"""

from nri_claim2core.nri.runtime.backend import BackendError, ContainerBackend, NoBackend
from nri_claim2core.nri.runtime.endpoint import EmbeddedRuntime, PluginInfo
from nri_claim2core.nri.runtime.journal import (
    CallFailure,
    CallResult,
    CreateResult,
    Entry,
    Exchange,
    PluginCall,
    PluginChange,
    PluginFailure,
    UpdateResult,
)
from nri_claim2core.nri.runtime.profiles_table import PROFILES, Profile, profile
from nri_claim2core.nri.runtime.registration import Quirks

__all__ = [
    "PROFILES",
    "BackendError",
    "CallFailure",
    "CallResult",
    "ContainerBackend",
    "CreateResult",
    "EmbeddedRuntime",
    "Entry",
    "Exchange",
    "NoBackend",
    "PluginCall",
    "PluginChange",
    "PluginFailure",
    "PluginInfo",
    "Profile",
    "Quirks",
    "UpdateResult",
    "profile",
]
