"""A plugin's reply in words: what it asked the runtime to change, or that it said nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.json_format import MessageToDict

from nri_claim2core.lab.simulation_report import Reply
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime import Exchange

NO_CHANGE: Final = "no change"
_SHOWN_ID: Final = 12


def reply_of(exchange: Exchange, names: Mapping[str, str]) -> Reply:
    """Give what a plugin answered to one request; `names` has container ids and their names."""
    reply = exchange.reply
    return Reply(
        plugin=exchange.plugin,
        event=exchange.event,
        text=_text(exchange, names),
        content=MessageToDict(reply) if reply is not None else {},
        ms=round(exchange.duration_ns / 1e6, 3),
    )


def _text(exchange: Exchange, names: Mapping[str, str]) -> str:
    if exchange.lost:
        return f"connection lost: {exchange.lost}"
    if exchange.failure is not None:
        return f"refused: {exchange.failure.text}"
    match exchange.reply:
        case api.CreateContainerResponse() as created:
            parts = [_resources(created.adjust.linux.resources)]
            parts += _updates(created.update, names)
        case api.UpdateContainerResponse() | api.StopContainerResponse() as updated:
            parts = list(_updates(updated.update, names))
        case api.SynchronizeResponse() as synchronized:
            parts = list(_updates(synchronized.update, names))
        case api.ValidateContainerAdjustmentResponse() as validated:
            parts = [f"rejected: {validated.reason}"] if validated.reject else []
        case _:
            parts = []
    return "; ".join(filter(None, parts)) or NO_CHANGE


def _updates(updates: Iterable[api.ContainerUpdate], names: Mapping[str, str]) -> Iterable[str]:
    for update in updates:
        name = names.get(update.container_id, update.container_id[:_SHOWN_ID])
        yield f"{name}: {_resources(update.linux.resources)}"


def _resources(resources: api.LinuxResources) -> str:
    cpu = resources.cpu
    parts = [f"cpus={cpu.cpus}"] if cpu.cpus else []
    parts += [f"mems={cpu.mems}"] if cpu.mems else []
    parts += [f"shares={cpu.shares.value}"] if cpu.HasField("shares") else []
    return " ".join(parts)
