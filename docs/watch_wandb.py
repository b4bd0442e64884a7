"""Send a run's log to Weights & Biases while it trains, or afterwards: python docs/watch_wandb.py RUN"""

import sys
import time
from pathlib import Path

import wandb

from vit_train.folder.log import read_log

folder = Path(sys.argv[1])
with wandb.init(project="vit-parity", name=str(folder), config=read_log(folder)[0]) as run:
    events = []
    while not events or events[-1]["kind"] != "test":  # a run's last event
        time.sleep(5 if events else 0)
        sent, events = len(events), read_log(folder)
        for event in events[sent:]:
            del event["time"]
            numbers = {f"{event['kind']}/{name}": x for name, x in event.items() if isinstance(x, float)}
            run.log(numbers, step=event["step"])
