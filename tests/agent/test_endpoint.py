"""The pages of the plugin, fetched as probes and a scraper would."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.endpoint import Endpoint
from nri_claim2core.agent.health import Health
from nri_claim2core.agent.metrics import Metrics


@pytest.fixture
def health() -> Health:
    return Health(live=["reader"], ready=["registered"])


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def endpoint(health: Health, metrics: Metrics) -> Iterator[Endpoint]:
    made = Endpoint.open(
        ListenAddress("127.0.0.1", 0), health=health, metrics=metrics, state=lambda: {"pods": 1}
    )
    assert made
    yield made
    made.close()


def get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=10) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_livez_is_short_until_asked_for_words(endpoint: Endpoint, health: Health) -> None:
    assert get(endpoint, "/livez") == (200, "ok\n")
    assert get(endpoint, "/livez?verbose") == (200, "[+] reader: running\nlivez check passed\n")
    health.set("reader", False, "no answer for 30 s")
    assert get(endpoint, "/livez") == (503, "[-] reader: no answer for 30 s\nlivez check failed\n")


def test_readyz_says_what_is_missing(endpoint: Endpoint, health: Health) -> None:
    assert get(endpoint, "/readyz") == (
        503,
        "[+] reader: running\n[-] registered: not yet\nreadyz check failed\n",
    )
    health.set("registered", True, "with containerd 2.3.4")
    assert get(endpoint, "/readyz") == (200, "ok\n")


def test_a_scrape_gives_the_counts_of_now(endpoint: Endpoint, metrics: Metrics) -> None:
    for count in (1, 2):
        metrics.request("CreateContainer", 0.001, "ok")
        status, body = get(endpoint, "/metrics")
        assert status == 200
        values = {
            sample.labels["operation"]: sample.value
            for family in text_string_to_metric_families(body)
            for sample in family.samples
            if sample.name == "claim2core_nri_requests_total" and sample.labels["result"] == "ok"
        }
        assert values["CreateContainer"] == count


def test_state_is_json(endpoint: Endpoint) -> None:
    status, body = get(endpoint, "/state")
    assert (status, json.loads(body)) == (200, {"pods": 1})


def test_an_address_in_use_is_said_once_and_may_be_tried_again(
    health: Health, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, caplog.at_level(logging.ERROR):
        address = ListenAddress("127.0.0.1", other.getsockname()[1])
        for _ in range(3):
            assert Endpoint.open(address, health=health, metrics=metrics, state=dict) is None
    assert [record.message for record in caplog.records] == ["no http endpoint"]
    opened = Endpoint.open(address, health=health, metrics=metrics, state=dict)
    assert opened
    opened.close()


def test_no_address_means_no_endpoint(health: Health, metrics: Metrics) -> None:
    made = Endpoint.open(ListenAddress(), health=health, metrics=metrics, state=dict)
    assert made
    assert made.port == 0
    made.close()


def test_serving_probes_imports_nothing_heavy() -> None:
    program = (
        "import sys, nri_claim2core.agent.endpoint;"
        "heavy = {'http.server', 'ssl', 'email', 'prometheus_client', 'asyncio', 'google'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
