"""A small blocking CRI client: what a kubelet does to pods and containers, and no more.

grpcio is an optional extra, imported when a client is made. Labels and annotations are
those that a kubelet sets, because NRI plugins read them. Each method is one CRI call, so a
caller that takes the time around it measures the runtime including its NRI round trips.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from nri_claim2core.lab.errors import CriError, MissingError
from nri_claim2core.lab.patience import SCALE
from nri_claim2core.lab.proto import cri_pb2 as pb

MIN_CPU_SHARES = 2
"""What a kubelet sends for a container without a CPU request."""

_CALL_TIMEOUT_S = 60.0 * SCALE
_Reply = TypeVar("_Reply", bound=Message)

# containerd learns of CDI specs from a file watcher, which may be later than the driver.
_UNNOTICED = "unresolvable CDI devices"
_CDI_NOTICE_S = 1.0 * SCALE
_CDI_RETRY_S = 0.02


class ContainerState(Enum):
    """CRI's container states."""

    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod sandbox that was started here."""

    id: str
    uid: str
    name: str
    namespace: str
    config: pb.PodSandboxConfig
    """What RunPodSandbox was asked; CreateContainer wants it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRef:
    """A container that was created here."""

    id: str
    name: str
    pod: Pod
    log_path: Path
    """CRI log file; exists once the container was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """CPU side of CRI's linux resources; empty or zero means "not set" (unchanged in updates)."""

    cpu_shares: int = 0
    cpu_quota: int = 0
    cpu_period: int = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    memory_limit_bytes: int = 0

    def to_message(self) -> pb.LinuxContainerResources:
        """The same as the CRI message."""
        return pb.LinuxContainerResources(
            cpu_shares=self.cpu_shares,
            cpu_quota=self.cpu_quota,
            cpu_period=self.cpu_period,
            cpuset_cpus=self.cpuset_cpus,
            cpuset_mems=self.cpuset_mems,
            memory_limit_in_bytes=self.memory_limit_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    """Verbose status of one container."""

    state: ContainerState
    exit_code: int
    reason: str
    pid: int
    """TGID on the host, 0 if it does not run."""
    runtime_spec: Mapping[str, Any]
    """The OCI spec as containerd stores it, CDI edits and plugins' adjustments included."""


class CriClient:
    """Client of one runtime; every method blocks until the runtime has answered.

    `cgroup_parent` gives the pod cgroup for a pod UID; `log_root` is the directory for
    container logs. All methods raise CriError when the runtime refuses.

    Raises:
        MissingError: grpcio is not installed.
    """

    def __init__(
        self, address: Path, *, cgroup_parent: Callable[[str], str], log_root: Path
    ) -> None:
        try:
            import grpc  # noqa: PLC0415 - optional extra
        except ImportError as error:
            raise MissingError(
                "the CRI client needs grpcio", hint="pip install 'nri-claim2core[demo]'"
            ) from error
        self._rpc_error: type[Exception] = grpc.RpcError
        self._cgroup_parent = cgroup_parent
        self._log_root = log_root
        self._channel = grpc.insecure_channel(
            f"unix://{address}",
            # The socket path is no legal HTTP/2 authority. Short back-off: a restarted
            # runtime is to be found at once.
            options=[
                ("grpc.default_authority", "localhost"),
                ("grpc.initial_reconnect_backoff_ms", 20),
                ("grpc.min_reconnect_backoff_ms", 20),
                ("grpc.max_reconnect_backoff_ms", 100),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_http_proxy", 0),
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; the client is of no use afterwards."""
        self._channel.close()

    def version(self, *, timeout_s: float = _CALL_TIMEOUT_S) -> tuple[str, str]:
        """Name and version of the runtime."""
        reply = self._call("Version", pb.VersionRequest(), pb.VersionResponse, timeout_s=timeout_s)
        return reply.runtime_name, reply.runtime_version

    def has_image(self, reference: str) -> bool:
        """Whether the runtime's CRI service knows an image."""
        reply = self._call(
            "ImageStatus",
            pb.ImageStatusRequest(image=pb.ImageSpec(image=reference)),
            pb.ImageStatusResponse,
            service="ImageService",
        )
        return reply.HasField("image")

    def run_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        uid: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        cgroup_parent: str | None = None,
        attempt: int = 0,
    ) -> Pod:
        """Start a host-network pod; `uid` is made up if none is given."""
        uid = uid or str(uuid.uuid4())
        directory = self._log_root / f"{namespace}_{name}_{uid}"
        directory.mkdir(parents=True, exist_ok=True)
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(
                name=name, uid=uid, namespace=namespace, attempt=attempt
            ),
            log_directory=str(directory),
            labels={**(labels or {}), **_pod_labels(name, namespace, uid)},
            annotations={"kubernetes.io/config.source": "api", **(annotations or {})},
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=cgroup_parent or self._cgroup_parent(uid),
                security_context=pb.LinuxSandboxSecurityContext(
                    namespace_options=pb.NamespaceOption(
                        network=pb.NamespaceMode.NODE, pid=pb.NamespaceMode.CONTAINER
                    )
                ),
            ),
        )
        reply = self._call(
            "RunPodSandbox", pb.RunPodSandboxRequest(config=config), pb.RunPodSandboxResponse
        )
        return Pod(id=reply.pod_sandbox_id, uid=uid, name=name, namespace=namespace, config=config)

    def stop_pod(self, pod: Pod) -> None:
        """Stop a pod and its containers."""
        self._call(
            "StopPodSandbox",
            pb.StopPodSandboxRequest(pod_sandbox_id=pod.id),
            pb.StopPodSandboxResponse,
        )

    def remove_pod(self, pod: Pod) -> None:
        """Stop and remove a pod with all its containers."""
        self.stop_pod(pod)
        self._call(
            "RemovePodSandbox",
            pb.RemovePodSandboxRequest(pod_sandbox_id=pod.id),
            pb.RemovePodSandboxResponse,
        )

    def list_pods(self, *, timeout_s: float = _CALL_TIMEOUT_S) -> dict[str, bool]:
        """Ids of the runtime's pods, with whether they are ready."""
        reply = self._call(
            "ListPodSandbox",
            pb.ListPodSandboxRequest(),
            pb.ListPodSandboxResponse,
            timeout_s=timeout_s,
        )
        return {item.id: item.state == pb.PodSandboxState.SANDBOX_READY for item in reply.items}

    def create_container(
        self,
        pod: Pod,
        name: str,
        *,
        image: str,
        command: Sequence[str] = (),
        args: Sequence[str] = (),
        env: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        cdi_devices: Sequence[str] = (),
        resources: Resources | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        attempt: int = 0,
    ) -> ContainerRef:
        """Create a container; without `resources` it is one without a CPU request.

        `attempt` is the restart count: a restarted container has the same name and another
        id. `env` as pairs can name a variable twice. `cdi_devices` are qualified names as
        kubelet passes them; a device whose spec the runtime has not noticed yet is waited for
        as kubelet does, by trying again.
        """
        log_path = f"{name}/{attempt}.log"
        (Path(pod.config.log_directory) / name).mkdir(exist_ok=True)
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=pb.ImageSpec(image=image),
            command=command,
            args=args,
            envs=[
                pb.KeyValue(key=key, value=value)
                for key, value in (env.items() if isinstance(env, Mapping) else env)
            ],
            labels={
                **(labels or {}),
                "io.kubernetes.container.name": name,
                **_pod_labels(pod.name, pod.namespace, pod.uid),
            },
            annotations={
                "io.kubernetes.container.restartCount": str(attempt),
                "io.kubernetes.pod.terminationGracePeriod": "30",
                **(annotations or {}),
            },
            log_path=log_path,
            linux=pb.LinuxContainerConfig(
                resources=(resources or Resources(cpu_shares=MIN_CPU_SHARES)).to_message(),
                security_context=pb.LinuxContainerSecurityContext(
                    namespace_options=pb.NamespaceOption(
                        network=pb.NamespaceMode.NODE, pid=pb.NamespaceMode.CONTAINER
                    )
                ),
            ),
            CDI_devices=[pb.CDIDevice(name=device) for device in cdi_devices],
        )
        request = pb.CreateContainerRequest(
            pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config
        )
        deadline = time.monotonic() + _CDI_NOTICE_S
        while True:
            try:
                reply = self._call("CreateContainer", request, pb.CreateContainerResponse)
                break
            except CriError as error:
                if _UNNOTICED not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_CDI_RETRY_S)
        return ContainerRef(
            id=reply.container_id,
            name=name,
            pod=pod,
            log_path=Path(pod.config.log_directory) / log_path,
        )

    def start(self, container_id: str) -> None:
        """Start a created container; returns when its workload was executed."""
        self._call(
            "StartContainer",
            pb.StartContainerRequest(container_id=container_id),
            pb.StartContainerResponse,
        )

    def stop(self, container_id: str, *, grace_s: int = 0) -> None:
        """Stop a container: SIGTERM, after `grace_s` SIGKILL; at once with 0."""
        self._call(
            "StopContainer",
            pb.StopContainerRequest(container_id=container_id, timeout=grace_s),
            pb.StopContainerResponse,
        )

    def remove(self, container_id: str) -> None:
        """Remove a container, killing it if it runs."""
        self._call(
            "RemoveContainer",
            pb.RemoveContainerRequest(container_id=container_id),
            pb.RemoveContainerResponse,
        )

    def update_resources(self, container_id: str, resources: Resources) -> None:
        """Change resources as a kubelet's CPU manager does; unset fields stay unchanged."""
        self._call(
            "UpdateContainerResources",
            pb.UpdateContainerResourcesRequest(
                container_id=container_id, linux=resources.to_message()
            ),
            pb.UpdateContainerResourcesResponse,
        )

    def list_containers(self) -> dict[str, ContainerState]:
        """Ids of the runtime's containers, with their states."""
        reply = self._call("ListContainers", pb.ListContainersRequest(), pb.ListContainersResponse)
        return {item.id: ContainerState(item.state) for item in reply.containers}

    def status(self, container_id: str) -> ContainerStatus:
        """Verbose status of a container."""
        reply = self._call(
            "ContainerStatus",
            pb.ContainerStatusRequest(container_id=container_id, verbose=True),
            pb.ContainerStatusResponse,
        )
        info = json.loads(reply.info.get("info", "{}"))
        return ContainerStatus(
            state=ContainerState(reply.status.state),
            exit_code=reply.status.exit_code,
            reason=reply.status.reason,
            pid=int(info.get("pid", 0)),
            runtime_spec=info.get("runtimeSpec") or {},
        )

    def _call(
        self,
        method: str,
        request: Message,
        reply: type[_Reply],
        *,
        service: str = "RuntimeService",
        timeout_s: float = _CALL_TIMEOUT_S,
    ) -> _Reply:
        call = self._channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        with self._named_errors(method):
            answer = call(request, timeout=timeout_s)
        if not isinstance(answer, reply):
            raise CriError(method, "INTERNAL", f"unexpected reply {type(answer).__name__}")
        return answer

    @contextmanager
    def _named_errors(self, method: str) -> Iterator[None]:
        try:
            yield
        except self._rpc_error as error:
            # grpc raises its call object, which has these two; the class itself is opaque.
            status, details = getattr(error, "code", None), getattr(error, "details", None)
            raise CriError(
                method,
                status().name if status else "UNKNOWN",
                (details() if details else None) or str(error),
            ) from error


def _pod_labels(name: str, namespace: str, uid: str) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": namespace,
        "io.kubernetes.pod.uid": uid,
    }
