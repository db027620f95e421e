"""Log lines: one per record, machine-readable off a terminal, no secrets, no forged lines."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from nri_claim2core.agent import logs

log = logging.getLogger("nri_claim2core.agent.example")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = list(root.handlers), root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)


def json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_off_a_terminal_each_record_is_one_json_object() -> None:
    stream = io.StringIO()
    logs.configure_logging("info", "auto", stream)
    log.info("container pinned", extra={"pod": "a\nb", "cpus": "0-3", "took_ms": 0.25})
    log.debug("not written")
    (line,) = json_lines(stream)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "agent.example",
        "msg": "container pinned",
        "pod": "a\nb",
        "cpus": "0-3",
        "took_ms": 0.25,
    }


def test_the_timestamp_is_utc_with_milliseconds() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "m", "created": 1767225599.9996})
    line = json.loads(logs.JsonFormatter().format(record))
    # date -u -d @1767225599 gives 2025-12-31 23:59:59
    assert line["ts"] == "2025-12-31T23:59:59.999Z"


def test_on_a_terminal_lines_are_aligned_text() -> None:
    stream = Terminal()
    logs.configure_logging("info", "auto", stream)
    log.info("registered", extra={"runtime": "containerd", "note": "two words", "empty": ""})
    log.warning("registered", extra={"runtime": "cri-o"})
    first, second = stream.getvalue().splitlines()
    assert (
        first[12:]
        == ' INFO    registered                   runtime=containerd note="two words" empty=""'
    )
    assert first.index("runtime=") == second.index("runtime=")
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(("style", "is_json"), [("json", True), ("text", False)])
def test_the_style_can_be_forced(style: str, is_json: bool) -> None:
    stream = Terminal() if is_json else io.StringIO()
    logs.configure_logging("info", style, stream)
    log.info("m")
    assert stream.getvalue().startswith("{") == is_json


def test_text_from_outside_cannot_make_a_line_of_its_own() -> None:
    stream = Terminal()
    logs.configure_logging("info", "text", stream)
    log.info("claim %s", "x\n12:00 ERROR forged", extra={"pod": "a\r\n\x1b[2Jb\u2028c"})
    assert len(stream.getvalue().splitlines()) == 1
    assert r"claim x\n12:00 ERROR forged" in stream.getvalue()
    assert r'pod="a\r\n\u001b[2Jb\u2028c"' in stream.getvalue()


def test_every_line_of_a_request_carries_its_op_and_no_other_threads() -> None:
    stream = io.StringIO()
    logs.configure_logging("info", "json", stream)
    with logs.op("1a2b3c4d"):
        log.info("inside")
        other = threading.Thread(target=log.info, args=("other thread",))
        other.start()
        other.join()
    log.info("after")
    log.info("said by the caller", extra={"op": "99aabbcc"})
    assert {str(line["msg"]): line.get("op") for line in json_lines(stream)} == {
        "inside": "1a2b3c4d",
        "other thread": None,
        "after": None,
        "said by the caller": "99aabbcc",
    }


@pytest.mark.parametrize(
    "environment",
    [["DRA_CPUSET_x=0-3", "TOKEN=s3cret"], {"DRA_CPUSET_x": "0-3", "TOKEN": "s3cret"}],
)
def test_values_of_environment_variables_are_never_written(environment: object) -> None:
    stream = io.StringIO()
    logs.configure_logging("info", "json", stream)
    log.info("m", extra={"env": environment, "Environ": "TOKEN=s3cret"})
    assert "s3cret" not in stream.getvalue()
    (line,) = json_lines(stream)
    assert line["env"] == ["DRA_CPUSET_x", "TOKEN"]
    assert line["Environ"] == ["TOKEN"]


def test_extras_cannot_replace_the_fields_of_a_line() -> None:
    stream = io.StringIO()
    logs.configure_logging("info", "json", stream)
    log.info("m", extra={"level": "x", "ts": 1, "ratio": float("nan"), "long": "y" * 5000})
    (line,) = json_lines(stream)
    assert line["level"] == "info"
    assert line["level_"] == "x"
    assert line["ratio"] == "nan"
    assert len(str(line["long"])) < 2100


@pytest.mark.parametrize(("style", "count"), [("json", 1), ("text", 4)])
def test_a_traceback_stays_with_its_record(style: str, count: int) -> None:
    stream = io.StringIO()
    logs.configure_logging("info", style, stream)
    try:
        int("bad\nnews")
    except ValueError:
        log.exception("handler failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) >= count
    if style == "json":
        assert "ValueError: invalid literal" in json.loads(lines[0])["error"]
    else:
        assert all(line.startswith("    ") for line in lines[1:])


def test_a_second_call_replaces_the_first_and_leaves_foreign_handlers() -> None:
    foreign = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(foreign)
    first, second = io.StringIO(), io.StringIO()
    logs.configure_logging("info", "json", first)
    logs.configure_logging("error", "json", second)
    log.error("m")
    log.info("not written")
    assert first.getvalue() == ""
    assert len(json_lines(second)) == 1
    assert foreign in logging.getLogger().handlers


def test_a_closed_stream_is_survived() -> None:
    stream = io.StringIO()
    logs.configure_logging("info", "json", stream)
    stream.close()
    log.info("nobody reads this")
