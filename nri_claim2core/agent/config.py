"""The configuration: every option with its type, its default, its meaning, when it applies.

This module is the single source. The loader, `config schema`, `config show` and the check of
the commented sample file all walk these structs (through `config_schema`). Structs are
frozen: a reload makes a new `Config`, so a handler that took one sees one consistent state.

Names are camelCase in files and snake_case here. The order is the order of the sample file.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from nri_claim2core.agent.config_values import Duration, HandlerDeadline, ListenAddress
from nri_claim2core.claims.effects import RefusalEffect, UnverifiedEffect
from nri_claim2core.model.envelope import Mode

MAX_LIST_ITEMS: Final = 64
"""More directories or namespaces than this in one list is a mistake, not a node."""


class Applies(enum.Enum):
    """When a changed option takes effect."""

    AT_ONCE = "at once"
    REGISTRATION = "at the next registration with the runtime"
    START = "at the next start"


class ViolationEffect(enum.Enum):
    """What is done about a cpuset that somebody else set outside the claims."""

    REPORT = "report"
    REJECT = "reject"


class SchedulingClass(enum.Enum):
    """Execution class of a container's threads."""

    LATENCY_CRITICAL = "latency-critical"
    COMMUNICATION_PROGRESS = "communication-progress"
    THROUGHPUT = "throughput"
    DEFAULT = "default"
    BACKGROUND = "background"


class LogLevel(enum.Enum):
    """Least severe record that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.Enum):
    """How a record is written."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


def _about(
    text: str, *, applies: Applies = Applies.AT_ONCE, expects: str = "", late: bool = True
) -> Meta:
    # `late`: may still be set by the text that the runtime delivers after registration.
    return Meta(description=text, extra={"applies": applies, "expects": expects, "late": late})


AbsolutePath = Annotated[str, Meta(pattern="^/", max_length=4096)]
SocketPath = Annotated[str, Meta(pattern="^/", max_length=107)]
NamespaceName = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
PluginName = Annotated[str, Meta(pattern="^[A-Za-z0-9_.+-]+$", max_length=64)]
PluginIndex = Annotated[str, Meta(pattern="^[0-9]{2}$", max_length=2)]


class PluginOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the plugin meets the container runtime."""

    name: Annotated[
        PluginName,
        _about(
            "Name under which the plugin registers.",
            applies=Applies.START,
            expects="a name of letters, digits and _ . + - only",
            late=False,
        ),
    ] = "claim2core"
    index: Annotated[
        PluginIndex,
        _about(
            "Place among the node's NRI plugins; lower indices are asked first. 95 comes after"
            " the plugins that choose CPUs, so their choice is seen before it is judged.",
            applies=Applies.START,
            expects='two digits in quotes, "00" to "99"',
            late=False,
        ),
    ] = "95"
    socket_path: Annotated[
        SocketPath,
        _about(
            "NRI socket of the runtime.",
            applies=Applies.START,
            expects="an absolute path of at most 107 characters",
            late=False,
        ),
    ] = "/var/run/nri/nri.sock"
    registration_timeout: Annotated[
        Duration,
        _about(
            "How long to wait for the runtime to take the registration before trying again.",
            applies=Applies.START,
            late=False,
        ),
    ] = Duration(5000)
    handler_deadline: Annotated[
        HandlerDeadline,
        _about(
            "Time for one request, after which it is answered without its handler: refused if"
            " the container had evidence of a claim, left unchanged if not. auto = a quarter"
            " of the runtime's request timeout, 500ms at most. A duration is cut to three quarters"
            " of it.",
            applies=Applies.REGISTRATION,
        ),
    ] = HandlerDeadline()


class ClaimsOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """What follows from claims that do not simply hold."""

    on_unverified: Annotated[
        UnverifiedEffect,
        _about(
            "The CDI spec has the claim, and nothing could say whether this pod holds it."
            " ignore = grants nothing, reported; enforce = as if verified; reject = the"
            " container is not created."
        ),
    ] = UnverifiedEffect.IGNORE
    on_forged: Annotated[
        RefusalEffect,
        _about(
            "Evidence says that this pod does not hold the claim. ignore = grants nothing,"
            " reported; reject = the container is not created."
        ),
    ] = RefusalEffect.IGNORE
    on_malformed: Annotated[
        RefusalEffect,
        _about(
            "A claim variable that cannot be read, without evidence for the claim. ignore ="
            " grants nothing, reported; reject = the container is not created."
        ),
    ] = RefusalEffect.IGNORE
    on_foreign_violation: Annotated[
        ViolationEffect,
        _about(
            "Another plugin set a cpuset that misses the container's claims or meets those of"
            " others. report = let it through and say so; reject = the container is not created."
        ),
    ] = ViolationEffect.REPORT


class CdiOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """Container Device Interface."""

    spec_dirs: Annotated[
        tuple[AbsolutePath, ...],
        Meta(min_length=1, max_length=MAX_LIST_ITEMS),
        _about(
            "Directories of CDI specs; of equal device names the last directory's holds."
            " The same list as the runtime's.",
            expects="an absolute path",
        ),
    ] = ("/etc/cdi", "/var/run/cdi")


class KubeletOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The kubelet's files on this node."""

    root: Annotated[
        AbsolutePath,
        _about(
            "The kubelet's --root-dir; its DRA checkpoint and CPU manager state are read.",
            expects="an absolute path",
        ),
    ] = "/var/lib/kubelet"


class SchedulingOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The maps that a sched_ext scheduler follows."""

    enabled: Annotated[
        bool,
        _about(
            "Make and pin the maps, and write the policy of every container with proven claims"
            " before it starts. Needs root or CAP_BPF and CAP_PERFMON, and libbpf1.",
            applies=Applies.START,
            late=False,
        ),
    ] = False
    pin_directory: Annotated[
        AbsolutePath,
        _about(
            "Where the maps are pinned, on a BPF file system.",
            applies=Applies.START,
            expects="an absolute path",
            late=False,
        ),
    ] = "/sys/fs/bpf/claim2core"
    default_class: Annotated[
        SchedulingClass,
        _about(
            "Execution class of containers with proven claims, from urgent to patient:"
            " latency-critical, communication-progress, default, throughput, background.",
            applies=Applies.START,
            late=False,
        ),
    ] = SchedulingClass.LATENCY_CRITICAL
    on_seed_failure: Annotated[
        ViolationEffect,
        _about(
            "A container's policy cannot be put in force. report = it runs in the default class"
            " and that is said; reject = it is not created, or where that shows only then, not"
            " started (CRI-O starts it all the same).",
            applies=Applies.START,
            late=False,
        ),
    ] = ViolationEffect.REPORT


class MetricsOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """The HTTP endpoint with /metrics, /livez, /readyz, /state and /ledger."""

    listen: Annotated[
        ListenAddress,
        _about(
            "Where it listens: ADDRESS:PORT, unix:/path, or empty for nowhere. It has no"
            " authentication: keep it on localhost or a socket unless the network is trusted."
        ),
    ] = ListenAddress("127.0.0.1", 9899)


class LogOptions(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is logged, to standard error."""

    level: Annotated[LogLevel, _about("Least severe record that is written.")] = LogLevel.INFO
    format: Annotated[
        LogFormat, _about("auto = text on a terminal, one JSON object per line elsewhere.")
    ] = LogFormat.AUTO


class Config(Struct, frozen=True, kw_only=True, rename="camel"):
    """All options."""

    plugin: PluginOptions = PluginOptions()
    mode: Annotated[
        Mode,
        _about(
            "Who writes the cpusets of claiming containers. auto = we do, unless another plugin"
            " already did; enforce = always we; verify = never, but check, report and refuse as"
            " configured; observe = never, and nothing is refused."
        ),
    ] = Mode.AUTO
    claims: ClaimsOptions = ClaimsOptions()
    cdi: CdiOptions = CdiOptions()
    kubelet: KubeletOptions = KubeletOptions()
    reserved_namespaces: Annotated[
        tuple[NamespaceName, ...],
        Meta(max_length=MAX_LIST_ITEMS),
        _about(
            "Namespaces of node services: their claiming containers keep the memory nodes that"
            " they came with.",
            expects="a namespace name",
        ),
    ] = ("kube-system",)
    validate_adjustments: Annotated[
        bool,
        _about(
            "Take part in the runtime's validation of what all plugins decided (containerd 2.2,"
            " CRI-O 1.34 and newer). Off by default: while a validator hangs, the runtime"
            " refuses every creation on the node.",
            applies=Applies.REGISTRATION,
        ),
    ] = False
    scheduling: SchedulingOptions = SchedulingOptions()
    metrics: MetricsOptions = MetricsOptions()
    log: LogOptions = LogOptions()


DEFAULTS: Final = Config()
"""What holds where no file says otherwise."""
