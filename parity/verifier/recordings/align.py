"""Alignment of two traces: which modules correspond, and so which tensors are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from parity.measure.traces import Trace
from parity.verifier.choices import How
from parity.verifier.recordings.calls import (
    Counterpart,
    EventPair,
    ModuleCall,
    Ports,
    kind_of,
    main_pair,
    pair_of,
)
from parity.verifier.recordings.calls import layout_between as layout_between
from parity.verifier.recordings.order import by_order
from vit_config import ConfigError, InputError, MissingFileError
from vit_config.files.foreign import parse_json, read_text


@dataclass(frozen=True, repr=False)
class Alignment:
    """Pairs of modules and of events."""

    modules: Mapping[ModuleCall, ModuleCall]
    """Partner in B of each aligned call in A."""
    pairs: tuple[EventPair, ...]
    """Events of the forward stage, in the order of A."""
    only_a: tuple[str, ...]
    """Modules of A without a partner."""
    only_b: tuple[str, ...]
    counterparts: Mapping[str, Counterpart] = field(default_factory=dict)
    """For each parameter of A whose partner is called or laid out otherwise: B's with its numbers."""

    def __repr__(self) -> str:
        return (
            f"<Alignment: {len(self.modules)} calls, {len(self.pairs)} tensors; without a partner"
            f" {len(self.only_a)} modules of A, {len(self.only_b)} of B>"
        )

    def path_in_b(self, path: str) -> str | None:
        """Return the partner of a module of A; None if it has none."""
        partner = self.modules.get(ModuleCall(path, 0))
        return partner.path if partner else None


def align(a: Trace, b: Trace, how: How | Path = "auto") -> Alignment:
    """Pair the modules of two traces, and their inputs and outputs, as A's first step calls them.

    Args:
        how: see `HOW`; or a JSON file {module of A: module of B}.

    Raises:
        ConfigError, MissingFileError: the map cannot be read, or names unknown modules.
        InputError: no modules correspond.
    """
    step = min(a.steps, default=0)
    left, right = _calls(a, step), _calls(b, step)
    ordered = False
    if isinstance(how, Path):
        partners = _by_map(how, left, right)
    else:
        partners = _by_name(left, right)
        if how != "name" and (how != "auto" or len(partners) < 0.5 * min(len(left), len(right))):
            ordered = True
            partners = by_order(a, b, left, right, values=how == "values")
    pairs = tuple(_event_pairs(left, right, partners))
    if ordered:
        pairs = tuple(_in_the_same_order(a, b, pairs))
    if not pairs and left and right:  # else parameters, gradients and losses meet by their names
        raise InputError(
            f"{a.path} and {b.path}: no module of one could be aligned with one of the other; give a map"
            " of their names with --map FILE"
        )
    taken = set(partners.values())
    order = {event.site: i for i, event in enumerate(a.events)}
    return Alignment(
        partners,
        tuple(sorted(pairs, key=lambda pair: order[pair.a.site])),
        tuple(dict.fromkeys(call.path for call in left if call not in partners)),
        tuple(dict.fromkeys(call.path for call in right if call not in taken)),
    )


def _calls(trace: Trace, step: int) -> Ports:
    """Return every call with the events at its ports, in the order in which calls end."""
    ports: Ports = defaultdict(dict)
    ends: dict[ModuleCall, int] = {}
    for order, event in enumerate(trace.of("forward", step)):
        call = ModuleCall(event.path, event.call)
        ports[call][event.port] = event
        ends[call] = order
    return {call: ports[call] for call in sorted(ports, key=lambda call: ends[call])}


def _by_name(left: Ports, right: Ports) -> dict[ModuleCall, ModuleCall]:
    return {call: call for call in left if call in right}


def _by_map(path: Path, left: Ports, right: Ports) -> dict[ModuleCall, ModuleCall]:
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file; give a JSON object of A's module names to B's")
    try:
        content = parse_json(read_text(path))
        names = {str(a): str(b) for a, b in content.items()}
    except (ValueError, AttributeError):
        raise ConfigError(f"{path}: expected a JSON object of A's module names to B's") from None
    for side, known, used in (("A", left, names), ("B", right, names.values())):
        paths = {call.path for call in known}
        if unknown := [name for name in used if name not in paths]:
            raise ConfigError(
                f"{path}: {', '.join(map(repr, unknown))}: {side} called no module of that name"
            )
    return {
        call: partner
        for call in left
        if call.path in names and (partner := ModuleCall(names[call.path], call.call)) in right
    }


def _in_the_same_order(a: Trace, b: Trace, pairs: Sequence[EventPair]) -> Iterator[EventPair]:
    """Yield the pairs but those recorded before a computation in one model and after it in the other.

    If the norm is inside the attention in A and before it in B, the two attentions return the same
    tensor, but their inputs are not the same tensor.
    """
    place = [{event.site: i for i, event in enumerate(trace.events)} for trace in (a, b)]
    places = [(place[0][pair.a.site], place[1][pair.b.site]) for pair in pairs]
    whole = [kind_of(a, pair.a.path) == "other" for pair in pairs]
    anchors = np.array([each for each, loose in zip(places, whole, strict=True) if not loose])
    for pair, (i, j), loose in zip(pairs, places, whole, strict=True):
        if not loose or not len(anchors) or ((anchors[:, 0] < i) == (anchors[:, 1] < j)).all():
            yield pair


def _event_pairs(
    left: Ports, right: Ports, partners: Mapping[ModuleCall, ModuleCall]
) -> Iterator[EventPair]:
    for call, partner in partners.items():
        mine, theirs = left[call], right[partner]
        pairs = [pair for port in mine if port in theirs and (pair := pair_of(mine[port], theirs[port]))]
        ports = {pair.a.port.partition("[")[0].partition(".")[0] for pair in pairs}
        for side in ("in", "out"):
            if side not in ports and (main := main_pair(side, mine, theirs)):
                pairs.append(main)
        yield from pairs
