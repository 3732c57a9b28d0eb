"""Celery as its users run it for durable work: RabbitMQ, persistent messages, acknowledged late, no results.

Started as a worker by `celery -A celery_noop worker`, as a producer by `python celery_noop.py TASKS`. Each task leaves
one byte in the file EFFECTS, so that what was done is counted outside of it.
"""
import os
import sys

from celery import Celery

app = Celery("celery_noop", broker=os.environ["AMQP"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_default_delivery_mode="persistent",
    worker_prefetch_multiplier=64,
    broker_transport_options={"confirm_publish": True},
    worker_hijack_root_logger=False,
)
effects = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.task(name="noop")
def noop(n):
    os.write(effects, b".")


if __name__ == "__main__":
    with app.producer_pool.acquire(block=True) as producer:
        for n in range(int(sys.argv[1])):
            noop.apply_async((n,), producer=producer)
