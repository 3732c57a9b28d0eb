"""Filter, map, and a keyed tumbling window by event time in Bytewax, on one worker.

`python bytewax_windows.py int|text EVENTS BATCH STEP_US WINDOW_US KEYS` prints the CPU seconds that it took, how many events came
through the filter, and the sum of what became of them. The events are those of `esp/load.rs`, made before the clock starts.
"""
import sys
import time
from datetime import datetime, timedelta, timezone

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

KIND, EVENTS, BATCH, STEP_US, WINDOW_US, KEYS = sys.argv[1], *map(int, sys.argv[2:])
START = datetime(1970, 1, 1, tzinfo=timezone.utc)
MASK = (1 << 64) - 1
done = {"count": 0, "sum": 0.0}


def draw(n):
    z = n * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def event(n):
    drawn = draw(n)
    key = drawn % KEYS
    # Keys are texts in Bytewax whatever they were before.
    key = f"meter-{key:05}" if KIND == "text" else str(key)
    return key, START + timedelta(microseconds=n * STEP_US), (drawn >> 40) / (1 << 24) * 100.0


class Part(StatelessSourcePartition):
    def __init__(self):
        self.batches = iter(batches)

    def next_batch(self):
        return next(self.batches)


class Source(DynamicSource):
    def build(self, step_id, worker_index, worker_count):
        return Part()


class Drain(StatelessSinkPartition):
    def write_batch(self, items):
        for _key, (_window, (count, total)) in items:
            done["count"] += count
            done["sum"] += total


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Drain()


def fold(state, row):
    return state[0] + 1, state[1] + row[2]


flow = Dataflow("windows")
rows = op.input("in", flow, Source())
rows = op.filter("filter", rows, lambda row: row[2] > 10.0)
rows = op.map("map", rows, lambda row: (row[0], row[1], row[2] * 1.1))
keyed = op.key_on("key", rows, lambda row: row[0])
clock = win.EventClock(ts_getter=lambda row: row[1], wait_for_system_duration=timedelta(seconds=0))
windower = win.TumblingWindower(align_to=START, length=timedelta(microseconds=WINDOW_US))
windows = win.fold_window(
    "window", keyed, clock, windower, lambda: (0, 0.0), fold, lambda a, b: (a[0] + b[0], a[1] + b[1])
)
op.output("out", windows.down, Sink())

batches = [[event(n) for n in range(first, min(EVENTS, first + BATCH))] for first in range(0, EVENTS, BATCH)]
begin = time.process_time()
run_main(flow)
print("seconds", time.process_time() - begin)
print("count", done["count"])
print("sum", repr(done["sum"]))
