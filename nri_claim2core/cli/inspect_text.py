"""The documents of `inspect` and `sweep` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nri_claim2core.cli import output

Document = Mapping[str, Any]

_LABEL: Final = 12
_ROW_OF: Final = {"none": "nobody", "cgroup": "cgroup", "task": "thread"}
_SWEEP_NEXT: Final = "`nri-claim2core sweep --dry-run` lists rows without provenance"


def maps(made: Document) -> str:
    """All maps of the document, then what to do next."""
    parts = [f"{'Maps':<{_LABEL}}{output.printable(made['pinDir'])}"]
    if "control" in made:
        parts.append(_control(made["control"]))
    if "cells" in made:
        parts.append(_cells(made["cells"]))
    if "cgroups" in made:
        parts.append(_rows("Cgroup rows", "CGROUP", "cgroupId", made["cgroups"]))
    if "tasks" in made:
        parts.append(_rows("Thread rows", "TID", "tid", made["tasks"]))
    if "stats" in made:
        parts.append(_stats(made["stats"]))
    rows = [*made.get("cgroups", ()), *made.get("tasks", ())]
    is_bad = not all(row["holds"] for row in rows)
    parts.append(_closing(made, _SWEEP_NEXT if is_bad else ""))
    return "\n\n".join(filter(None, parts))


def thread(made: Document) -> str:
    """One thread."""
    has_ended = made["comm"] is None
    policy = made["policy"]
    lines = [
        _line("Thread", f"{made['tid']} of process {made['tgid']}, {made['comm'] or 'ended now'}"),
        _line("Started", f"{made['startBoottimeNs'] / 1e9:.6f} s after the boot"),
        _line("Cgroup", f"{made['cgroup'] or '?'} (id {made['cgroupId']})"),
        _line("May run on", "?" if has_ended else f"CPUs {made['affinity']}"),
        _line("Governed by", made["explanation"]),
        *(_line("", note) for note in made["notes"]),
    ]
    if made["governedBy"] != "none":
        lines += [_line("Policy", _policy(policy)), _line("Cell", _cell_words(made))]
    lines += _provenance(made["provenance"])
    steps = ""
    if made["governedBy"] == "none" and made["cgroup"]:
        steps = f"`nri-claim2core inspect container --cgroup {made['cgroup']}` shows its cgroup"
    return "\n".join([*lines, _closing(made, steps)]).rstrip()


def container(made: Document) -> str:
    """One container."""
    top, *below = made["cgroups"]
    lines = [_line("Cgroup", f"{made['cgroup']} (id {top['cgroupId']})")]
    if below:
        own = sum(each["hasRow"] for each in below)
        lines.append(_line("Below it", f"{_count(below, 'cgroup')}, {own} with a row"))
    row = made["row"]
    if row is None:
        lines.append(_line("Row", "none, nor at a cgroup above: default class, cell 0"))
    else:
        lines.append(_line("Row", f"of {made['governingCgroup']}: {row['explanation']}"))
        lines.append(_line("Policy", _policy(row)))
        lines.append(_line("Cell", _cell_line(made["cell"], row)))
        lines += _provenance(row["provenance"])
    parts = ["\n".join(lines), _threads(made)]
    steps = "" if row else "`nri-claim2core explain` says which claims a container holds"
    if row and not row["holds"]:
        steps = _SWEEP_NEXT
    return "\n\n".join(filter(None, [*parts, _closing(made, steps)]))


def sweep(made: Document) -> str:
    """Rows without provenance, and what became of them."""
    rows = made["rows"]
    tried = any(row["outcome"] for row in rows)
    nr_deleted = sum(row["outcome"] == "deleted" for row in rows)
    if not rows:
        head = "Every row has provenance" if made["plugin"]["answered"] else "No row is void"
        head += f"; {made['nrKept']} stay."
    elif tried:
        head = f"{nr_deleted} of {_count(rows, 'row')} deleted, {made['nrKept']} stay."
    else:
        head = f"{_count(rows, 'row')} without provenance; {made['nrKept']} others stay."
    parts = [head]
    if rows:
        headers = ["MAP", "KEY", "GENERATION", "WHY"] + (["OUTCOME"] if tried else [])
        parts.append(output.table(headers, (_swept(row, tried=tried) for row in rows)))
    parts += [output.paragraph(f"note: {note}", hanging="  ") for note in made["notes"]]
    parts.append(_closing(made, _sweep_step(made)))
    if made["dryRun"]:
        parts.append("Nothing was written.")
    return "\n\n".join(filter(None, parts))


def _swept(row: Document, *, tried: bool) -> list[object]:
    place = f" ({row['cgroup']})" if row["cgroup"] else ""
    cells = [row["map"], row["key"], row["generation"], row["explanation"] + place]
    return [*cells, row["outcome"]] if tried else cells


def _sweep_step(made: Document) -> str:
    if not made["rows"]:
        return ""
    if not made["dryRun"]:
        left = any(row["outcome"] != "deleted" for row in made["rows"])
        return "what was not deleted is the next plugin's to rebuild or delete" if left else ""
    writer = made["writer"]
    if writer["alive"] or made["plugin"]["answered"]:
        return "nothing to do here: the plugin deletes them after two passes"
    return "start the plugin, which cleans up, or `nri-claim2core sweep` deletes them"


def _control(control: Document) -> str:
    now = control["nowNs"]
    writer = "nobody yet"
    if control["token"]:
        words = {True: "runs", False: "has ended: nobody renews rows", None: "cannot be seen here"}
        writer = f"process {control['writerTgid']}, {words[control['writerAlive']]}; "
        writer += f"token {control['token']}, taken {_ago(now, control['takenNs'])}"
    scheduler = "none uses these maps"
    if control["schedulerNs"]:
        scheduler = f"attached to these maps {_ago(now, control['schedulerNs'])}"
    flags = ["emergency stop: no row is used" if f == "suspended" else f for f in control["flags"]]
    lines = [
        _line("ABI", f"{control['abi']}"),
        _line("Generation", f"{control['generation']}, rows below {control['floor']} are void"),
        _line("Writer", writer),
        _line("Scheduler", scheduler),
    ]
    if control["busyNs"]:
        lines.append(_line("Mutation", f"one runs since {_ago(now, control['busyNs'])}"))
    return "\n".join(lines + ([_line("Flags", ", ".join(flags))] if flags else []))


def _cells(cells: Sequence[Document]) -> str:
    headers = ["CELL", "GENERATION", "STATE", "CPUS", "ROWS", "WHAT"]
    keys = ("cell", "generation", "state", "cpus", "nrRows", "explanation")
    rows = [[cell[key] for key in keys] for cell in cells]
    return f"Cells: {len(cells)}\n" + (output.table(headers, rows) if rows else "none in use")


def _rows(title: str, header: str, key: str, rows: Sequence[Document]) -> str:
    if not rows:
        return f"{title}: none"
    headers = [header, "GENERATION", "CLASS", "CELL", "STATE", "WHOSE"]
    cells = (
        [row[key], row["generation"], row["class"], row["cell"], row["explanation"], _whose(row)]
        for row in rows
    )
    return f"{title}: {len(rows)}\n" + output.table(headers, cells)


def _whose(row: Document) -> str:
    known = row["provenance"]
    if known and (known["pod"] or known["container"]):
        return f"{known['pod']} {known['container']}".strip()
    return str(row["path"] or "-")


def _stats(stats: Document) -> str:
    lines = ["Counted since the maps were made (zeroes left out):"]
    titles = {
        "results": "mutations",
        "verdicts": "look-ups by the scheduler",
        "runs": "runs by class",
    }
    for key, title in titles.items():
        counted = ", ".join(f"{name} {n}" for name, n in stats[key].items() if n)
        lines.append(output.paragraph(f"{title}: {counted or 'none'}", indent="  ", hanging="    "))
    return "\n".join(lines)


def _threads(made: Document) -> str:
    if made["problem"]:
        text = f"note: what governs the threads could not be asked: {made['problem']}"
        return output.paragraph(text, hanging="  ")
    threads = made["threads"]
    if not threads:
        return "Threads: none"
    headers = ["TID", "NAME", "CPUS", "BY ROW OF", "CLASS", "CELL", "NOTES"]
    cells = (
        [
            each["tid"],
            each["comm"] or "?",
            each["affinity"] or "?",
            _ROW_OF[each["governedBy"]],
            each["policy"]["class"],
            each["policy"]["cell"],
            "; ".join(each["notes"]),
        ]
        for each in threads
    )
    return f"Threads: {len(threads)}\n" + output.table(headers, cells)


def _policy(policy: Document) -> str:
    words = [f"class {policy['class']}", f"weight {policy['weight'] or 100}"]
    if policy["sliceNs"]:
        words.append(f"slice {policy['sliceNs'] / 1e6:g} ms")
    words.append(f"generation {policy['generation']}, claims' key {policy['claimKey']}")
    return ", ".join(words)


def _cell_words(made: Document) -> str:
    return f"{made['policy']['cell']}, CPUs {made['cellCpus'] or 'of everybody else'}"


def _cell_line(cell: Document | None, row: Document) -> str:
    if cell is None:
        return f"{row['cell']} of generation {row['cellGeneration']}, which is there no more"
    cpus = cell["cpus"] or "of everybody else"
    return f"{cell['cell']}, CPUs {cpus}, {cell['state']}: {cell['explanation']}"


def _provenance(known: Document | None) -> list[str]:
    if not known:
        return []
    who = f"container {known['container'] or known['containerId'] or '?'} of pod {known['pod']}"
    return [_line("Whose", f"{who}; claims {', '.join(known['claims']) or 'none'}")]


def _closing(made: Document, steps: str) -> str:
    plugin = made["plugin"]
    lines = []
    if not plugin["answered"]:
        at = f" at {plugin['address']}" if plugin["address"] else ""
        text = f"no plugin answered{at} ({plugin['problem']}): rows are shown without provenance"
        lines.append(output.paragraph(text, hanging="  "))
    if steps:
        lines.append(output.paragraph(f"Next: {steps}", hanging="  "))
    return "\n".join(lines)


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _line(label: str, text: str) -> str:
    return output.paragraph(f"{label:<{_LABEL}}{text}", hanging=" " * _LABEL)


def _ago(now_ns: int, then_ns: int) -> str:
    return f"{max(0, now_ns - then_ns) / 1e9:.1f} s ago"
