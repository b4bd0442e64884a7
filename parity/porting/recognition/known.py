"""The fields of a schema that are known so far, and who states each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.porting.dialects.dialect import NEUTRAL, Unsaid, agree
from parity.porting.recognition.questions import Question, of_unsaid
from vit_config import ConfigError, WeightsError
from vit_config.rope import Rope

SIDES = ("image_size", "patch_size")
"""Fields that are pairs of a height and a width."""
COUNTS = (*SIDES, "hidden_size", "num_heads", "attention_head_dim", "in_channels")
"""Fields from which others are computed."""

SHAPES, GIVEN, OVERRIDDEN, ASSUMED = "shapes", "given", "overridden", "assumed"
"""Origins of a field, beside the names of files and presets."""
PRESET = "preset "
"""Prefix of the origin of a field from a preset."""
_OVERRULE = "to overrule the file, give --override"


@dataclass
class Known:
    """The fields known so far, and their origins."""

    fields: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    overridden: dict[str, str] = field(default_factory=dict)
    """Notes on overridden statements, by field."""
    asked: dict[str, Question] = field(default_factory=dict)
    """Questions about statements that cannot be taken, by field."""

    def take(self, stated: Mapping[str, Any], where: str) -> None:
        """Add the fields that a source states; refuse all that contradict an earlier source at once."""
        facts: list[str] = []
        ways: dict[str, list[str]] = {}
        for name, value in stated.items():
            value = comparable(name, value)
            if isinstance(value, Unsaid):
                self._take_unsaid(name, value, where)
                continue
            if self.origins.get(name) not in (GIVEN, OVERRIDDEN):
                _check_counts(name, value, where)
            if name not in self.fields:
                self.fields[name], self.origins[name] = value, where
                continue
            before, origin = self.fields[name], self.origins[name]
            keeping = f"{name}={word(before)}"
            if before == value:
                if where in (GIVEN, OVERRIDDEN):  # the user confirms the tensors, whatever a file says
                    self.origins[name] = where
            elif origin == GIVEN:
                facts.append(f"{name} = {word(value)} ({where}), but {word(before)} (--set)")
                ways.setdefault(_OVERRULE, []).append(keeping)
            elif origin == OVERRIDDEN:
                note = f"{name} = {word(before)} by --override, where {where} says {word(value)}"
                self.overridden.setdefault(name, note)
            elif where == OVERRIDDEN:
                facts.append(f"{name} = {word(before)} ({origin}), but {word(value)} (--override)")
                ways["tensors cannot be overridden"] = []
            elif not agree(name, before, value) and (name not in NEUTRAL or origin == SHAPES):
                facts.append(f"{name} = {word(before)} ({origin}), but {word(value)} ({where})")
                if where.startswith(PRESET) and origin == SHAPES:
                    ways["give another preset by --like, or none"] = []
                ways.setdefault("to go with the first, give --override", []).append(keeping)
        if facts:
            said = [" ".join([way, *fields]) for way, fields in ways.items()]
            raise (ConfigError if _OVERRULE in ways else WeightsError)("; ".join([*facts, *said]))

    def _take_unsaid(self, name: str, value: Unsaid, where: str) -> None:
        """Keep the user's value in place of one that no schema can express; ask if there is none."""
        if self.origins.get(name) not in (GIVEN, OVERRIDDEN):
            self.asked[name] = of_unsaid(name, value, where)
            return
        note = f"{name} = {word(self.fields[name])} as stated, where {where} says {value.said}"
        self.overridden.setdefault(name, note)

    def fill(self, stated: Mapping[str, Any], where: str) -> None:
        """Add the fields that a source states and that are unknown so far."""
        self.take({name: v for name, v in stated.items() if name not in self.fields}, where)


def comparable(name: str, value: Any) -> Any:
    """Return a value in a comparable form: a size as a pair, rope as a `Rope`, a list as a tuple."""
    if name in SIDES and isinstance(value, int):
        return (value, value)
    if name == "rope" and isinstance(value, dict):
        return Rope(**value)
    return tuple(value) if isinstance(value, list) else value


def _check_counts(name: str, value: Any, where: str) -> None:
    """Refuse invalid values of fields from which others are computed; the schema checks the rest."""
    if name in COUNTS and value is not None:
        counts = value if isinstance(value, tuple) else (value,)
        number = 2 if name in SIDES else 1
        positive = all(type(each) is int and each > 0 for each in counts)
        if not positive or isinstance(value, tuple) != (number > 1) or len(counts) != number:
            what = "a height and a width" if number > 1 else "a positive whole number"
            advice = f"; give --override {name}={'HxW' if number > 1 else 'N'}"
            text = f"{name} = {json.dumps(value)} ({where}); expected {what}"
            raise WeightsError(text + advice * (where not in (GIVEN, OVERRIDDEN, SHAPES)))


def word(value: Any) -> str:
    """Format a field's value as the command line takes it."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}x{value[1]}"
    if isinstance(value, Rope):
        return value.to_json()
    return value if isinstance(value, str) else json.dumps(value)
