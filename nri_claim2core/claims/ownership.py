"""Who writes a container's cpuset: decided once, at creation.

Two NRI plugins that write one field make the whole request fail, so whoever spoke before us
has the container. The kubelet is not such a plugin: its value arrives with the creation, and
what its CPU manager gave is part of the envelope, so a value that is exactly the kubelet's
leaves the container ours.

An update leaves no mark of who sent it. A container that we found without a cpuset and gave
one looks, at our next start, as if another plugin had done so; one that has exactly what we
would give it is therefore taken for ours. To hold it there can move nobody.
"""

from __future__ import annotations

from nri_claim2core.model.cpuset import CpuSet, parse_kernel
from nri_claim2core.model.envelope import Mode, Ownership
from nri_claim2core.model.errors import CpuListError


def decide_ownership(
    mode: Mode,
    arrived_cpus: str,
    *,
    has_claims: bool,
    kubelet_entry: CpuSet | None = None,
    kubelet_default: CpuSet | None = None,
    owned: bool = False,
    put_back: tuple[CpuSet, ...] = (),
) -> Ownership:
    """Give the owner of a container's cpuset.

    `arrived_cpus` is the text that came with the creation; `kubelet_entry` what kubelet's CPU
    manager holds for the container, `kubelet_default` its shared set where it manages one;
    `owned` that an earlier creation of this very container was answered with our cpuset;
    `put_back` what an earlier start of ours gave a container that exists already.
    """
    if not has_claims:
        return Ownership.NONE
    if mode in (Mode.VERIFY, Mode.OBSERVE):
        return Ownership.FOREIGN
    if mode is Mode.ENFORCE or owned or not arrived_cpus.strip():
        return Ownership.OWN
    try:
        arrived = parse_kernel(arrived_cpus)
    except CpuListError:
        # Somebody set something we cannot read; it is not ours to overwrite.
        return Ownership.FOREIGN
    ours = not arrived or arrived in (kubelet_entry, kubelet_default, *put_back)
    return Ownership.OWN if ours else Ownership.FOREIGN
