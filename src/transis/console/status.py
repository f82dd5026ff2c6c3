"""`transis status`: how a daemon is, on one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from transis.console.asking import AdminConnection, AdminOption, JsonOption, SocketOption, unable
from transis.console.printing import counted, plain_table, stdout
from transis.types.errors import TransisError

STATUS_EXAMPLES = """Examples:

transis status

transis status --json | jq .view.members

transis status --admin /run/transis/second-admin.sock
"""

Values = Mapping[str, Any]


def status(admin: AdminOption = None, socket: SocketOption = None, as_json: JsonOption = False) -> None:
    """Show members, state, view, clients, rates and warnings of a daemon."""
    try:
        with AdminConnection(admin, socket) as connection:
            found = connection.ask("status")
            members = connection.ask("members")["members"]
            sessions = connection.ask("sessions", limit=20)
            figures = connection.ask("statistics")["statistics"]
    except TransisError as error:
        raise unable("status", error) from None
    if as_json:
        del found["ok"]
        print(json.dumps(found | {"member_list": members, "session_list": sessions["sessions"], "statistics": figures}))
        return
    _show(stdout(), found, members, sessions, figures)


def _show(console: Console, found: Values, members: Sequence[Values], sessions: Values, figures: Values) -> None:
    console.print(_head(found, figures))
    console.print()
    console.print(_member_table(members))
    if sessions["count"]:
        console.print()
        console.print(_session_table(sessions))
    for warning in found["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


def _head(found: Values, figures: Values) -> Table:
    table = Table.grid(padding=(0, 2))
    for what, words in _facts(found, figures):
        table.add_row(Text(what, style="dim"), words)
    return table


def _facts(found: Values, figures: Values) -> list[tuple[str, Text]]:
    state_style = "green" if found["state"] == "Operational" else "bold yellow"
    who = f"{found['node']}, life {found['incarnation']}, of cluster {found['cluster']}; up {duration(found['up_s'])}"
    engine = found.get("engine", "totem")
    facts = [("node", Text(who)), ("engine", Text(engine)), ("state", Text(found["state"], style=state_style))]
    view, rates = found["view"], found["rates"]
    if view is None:
        facts.append(("view", Text("none yet", style="yellow")))
    else:
        facts.append(("view", Text(f"{view['id']} for {duration(view['since_s'])}: {view['cause']}")))
        if view["primary"] is not None:
            facts.append(
                ("primary", Text("yes") if view["primary"] else Text("no: others may have the majority", style="bold yellow"))
            )
    seal = "sealed" if found["sealed"] else "in plain text"
    how = f"{found['transport']} at {found['address']}, {seal}, GSO {figures.get('gso', '?')}"
    facts.append(("network", Text(how)))
    facts.append(("clients", Text(f"{found['sessions']:,} at {found['socket']}; {counted(found['groups'], 'group')}")))
    if index := synchrony(figures):
        facts.append(("synchrony", Text(index)))
    facts.append(("rates", Text(_rates(rates, engine))))
    facts.append(("trouble", Text(_trouble(figures))))
    return facts


def _rates(rates: Values, engine: str) -> str:
    shown = {"delivered_per_s": "messages", "received_datagrams_per_s": "datagrams in", "sent_datagrams_per_s": "datagrams out"}
    shown |= {"bursts_per_s": "bursts"} if engine == "lansis" else {"rotations_per_s": "rotations"}
    return ", ".join(f"{rates.get(rate, 0):,.0f} {what}" for rate, what in shown.items()) + " a second"


def synchrony(figures: Values) -> str:
    """At how many members a message was known to be when it was delivered, by service: the mean and the least."""
    told = []
    for service in ("basic", "causal", "agreed", "safe"):
        mean, least = figures.get(f"synchrony_{service}_milli"), figures.get(f"synchrony_{service}_min")
        if mean is not None:
            told.append(f"{service} {mean / 1000:.3g} (least {least})")
    return "index " + ", ".join(told) if told else ""


def _trouble(figures: Values) -> str:
    lost = sum(value for name, value in figures.items() if name.startswith("tokens_lost_"))
    given_up = sum(value for name, value in figures.items() if name.startswith("breaks_"))
    first = f"{given_up:,} given up" if "breaks_silence" in figures else counted(lost, "token lost", "tokens lost")
    others = (f"{figures.get(what, 0):,} {what}" for what in ("retransmitted", "requested", "rejected"))
    return ", ".join((first, *others, counted(figures.get("pauses", 0), "pause")))


def _member_table(members: Sequence[Values]) -> Table:
    table = plain_table("member", "life", "address", "info")
    for column in table.columns[2:]:
        column.justify = "left"
    for member in members:
        name = Text(member["name"], style="bold") + Text(" (this one)" if member["me"] else "", style="dim")
        table.add_row(name, str(member["incarnation"]), member["address"], member["info"])
    return table


def _session_table(sessions: Values) -> Table:
    table = plain_table("client", "label", "groups", "sent", "received", "behind", "up")
    table.columns[1].justify = table.columns[2].justify = "left"
    for one in sessions["sessions"]:
        names = " ".join(one["groups"][:5]) + (f" and {len(one['groups']) - 5} more" if len(one["groups"]) > 5 else "")
        counts = (f"{one['sent']:,}", f"{one['received']:,}", f"{one['queue_bytes']:,} B")
        table.add_row(str(one["process"]), one["label"], names, *counts, duration(one["up_s"]))
    if sessions["count"] > len(sessions["sessions"]):
        table.caption = f"and {sessions['count'] - len(sessions['sessions']):,} more clients"
    return table


def duration(seconds: int) -> str:
    """`42 s`, `3 min`, `5 h 12 min`, `2 d 4 h`: the two units that matter."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3_600, seconds // 86_400
    if minutes < 60:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"
