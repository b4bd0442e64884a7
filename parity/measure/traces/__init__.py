"""Traces: what one program computed, written down so that another can be compared with it."""

from parity.measure.site import Site, Stage
from parity.measure.traces.format import Event, ModuleFacts
from parity.measure.traces.reader import Trace
from parity.measure.traces.recorder import Recorder, record

__all__ = ["Event", "ModuleFacts", "Recorder", "Site", "Stage", "Trace", "record"]
