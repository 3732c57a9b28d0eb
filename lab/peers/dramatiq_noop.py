"""Dramatiq as its users run it: RabbitMQ, persistent messages, publisher confirms, no results.

Started as a worker by `dramatiq dramatiq_noop`, as a producer by `python dramatiq_noop.py TASKS`. Each task leaves one
byte in the file EFFECTS, so that what was done is counted outside of it.
"""
import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

dramatiq.set_broker(RabbitmqBroker(url=os.environ["AMQP"], confirm_delivery=True))
effects = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@dramatiq.actor(max_retries=0)
def noop(n):
    os.write(effects, b".")


if __name__ == "__main__":
    for n in range(int(sys.argv[1])):
        noop.send(n)
