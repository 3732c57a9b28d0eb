#!/usr/bin/env python3
"""A worker in ten lines: WORKER_URL=mqtt://127.0.0.1:1883 python3 power_factor.py"""
import os

from mutirao_worker import Worker

worker = Worker("python-worker-01", os.environ.get("WORKER_URL", "mqtt://127.0.0.1:1883"), layer="fog")


@worker.action("actions.power_factor")
async def power_factor(data):
    return {"power_factor": data["watt"] / (data["volt"] * data["ampere"])}


worker.run()
