"""Fixtures of the tests on a real containerd.

Every test that asks for `containerd` or `installation` runs once for each containerd found
(cache and PATH). A series that should be there and is not skips by name, or fails if
CLAIM2CORE_REQUIRE lists it (comma-separated, such as `containerd-2.1,containerd-2.4`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import PluginNode
from nri_claim2core.lab.containerd import Containerd, Installation, find_installations
from nri_claim2core.lab.errors import MissingError
from nri_claim2core.lab.image import Image
from nri_claim2core.lab.workload import lab_images

FIRST_MASK_SOURCE = Path(__file__).parent / "workload" / "firstmask.c"

# The oldest and the newest way of speaking NRI that `make setup` provides.
WANTED_SERIES = ("containerd-2.1", "containerd-2.4")


def required_series() -> set[str]:
    names = os.environ.get("CLAIM2CORE_REQUIRE", "").split(",")
    return {name.strip() for name in names if name.strip().startswith("containerd-")}


def installation_params() -> list[object]:
    found = find_installations()
    params: list[object] = [pytest.param(each, id=each.label) for each in found]
    missing = sorted(
        {*WANTED_SERIES, *required_series()} - {installation.series for installation in found}
    )
    return [*params, *(pytest.param(series, id=series) for series in missing)]


def skip_or_fail(series: str, reason: str) -> None:
    if series in required_series():
        pytest.fail(f"CLAIM2CORE_REQUIRE names {series}: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session", params=installation_params())
def installation(request: pytest.FixtureRequest) -> Installation:
    """A containerd that can run here."""
    param = request.param
    if not isinstance(param, Installation):
        skip_or_fail(param, f"no {param} on this machine: run make setup")
    if os.geteuid() != 0:
        skip_or_fail(param.series, "a private containerd needs root")
    return param


@pytest.fixture(scope="session")
def images() -> Sequence[Image]:
    """Images of the bed, with the workload compiled where a compiler is."""
    try:
        return lab_images(FIRST_MASK_SOURCE)
    except MissingError as error:
        # Without images no series can run, so any required one makes it a failure.
        skip_or_fail(next(iter(required_series()), ""), str(error))
        raise


@pytest.fixture(scope="module")
def containerd(installation: Installation, images: Sequence[Image]) -> Iterator[Containerd]:
    """A running private containerd that knows the images; one for a test module."""
    with Containerd(installation) as bed:
        bed.import_images(images)
        yield bed


@pytest.fixture(scope="module")
def plugin_node(containerd: Containerd) -> Iterator[PluginNode]:
    """The plugin process on that containerd; one for a test module."""
    with short_directory() as directory, PluginNode(containerd, directory) as node:
        yield node


@pytest.fixture
def node(plugin_node: PluginNode) -> Iterator[PluginNode]:
    """The same for one test, which finds it empty and with its default configuration."""
    yield plugin_node
    plugin_node.clear()
