"""The Node Resource Interface for Python: both ends of the wire, reusable on their own.

Here belong the protocol of NRI (multiplexer, ttrpc, messages), the endpoint that plugins are
written on and the endpoint that drives them as a container runtime does. Never here: what a
plugin decides, Kubernetes, cgroups. Importing this loads neither asyncio nor ssl: a plugin is
in the way of every container start, and starts itself within the runtime's time-out.

Start with `plugin` (what an author writes) and README.md; then `connection` (the protocol
without its socket), `session` (one connection on a socket) and `runner` (for ever).
`runtime` is the other end.
"""

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.call import Call, Cancelled
from nri_claim2core.nri.errors import RpcError
from nri_claim2core.nri.plugin import Plugin
from nri_claim2core.nri.runner import Observer, Runner, run
from nri_claim2core.nri.status import Code

__all__ = ["Call", "Cancelled", "Code", "Observer", "Plugin", "RpcError", "Runner", "api", "run"]
