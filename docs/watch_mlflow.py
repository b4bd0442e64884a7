"""Send a run's log to MLflow while it trains, or afterwards: python docs/watch_mlflow.py RUN"""

import sys
import time
from pathlib import Path

import mlflow

from vit_train.folder.log import read_log

folder = Path(sys.argv[1])
with mlflow.start_run(run_name=str(folder)):
    mlflow.log_params(read_log(folder)[0])
    events = []
    while not events or events[-1]["kind"] != "test":  # a run's last event
        time.sleep(5 if events else 0)
        sent, events = len(events), read_log(folder)
        for event in events[sent:]:
            del event["time"]
            numbers = {f"{event['kind']}/{name}": x for name, x in event.items() if isinstance(x, float)}
            mlflow.log_metrics(numbers, event["step"])
