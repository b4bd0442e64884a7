"""Traces: what one program computed, written down so that another can be compared with it."""

from parity.traces.format import Event, ModuleFacts, Site, Stage
from parity.traces.reader import Trace
from parity.traces.recorder import Recorder, record

__all__ = ["Event", "ModuleFacts", "Recorder", "Site", "Stage", "Trace", "record"]
