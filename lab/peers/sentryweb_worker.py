"""A worker as the SentryWeb document describes it: RabbitMQ, 50 messages prefetched, 50 threads, each check an HTTP request
that is good with status 200, acknowledged by hand when it has ended.

`python sentryweb_worker.py work` checks; `… offer RATE SECONDS PORT TARGET` publishes checks at a steady rate. Each check
that was good leaves one byte in the file EFFECTS, so that what was done is counted outside of it.
"""
import functools
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pika
import requests

QUEUE = "sentryweb"
VARIED = 100


def channel():
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP"]))
    ours = connection.channel()
    ours.queue_declare(QUEUE, durable=True)
    return connection, ours


def url_of(target, port, n):
    if target == "local":
        return f"http://127.0.0.1:{port}/"
    if target == "slow":
        return f"http://127.0.0.1:{port}/slow"
    return f"http://127.0.1.{n % VARIED + 1}:{port}/varied/{n % VARIED}"


def work():
    effects = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    connection, ours = channel()
    ours.basic_qos(prefetch_count=50)
    threads = ThreadPoolExecutor(max_workers=50)

    def check(tag, body):
        try:
            answer = requests.get(json.loads(body)["payload"]["url"], timeout=5)
            if answer.status_code == 200:
                os.write(effects, b".")
        except requests.RequestException:
            pass
        connection.add_callback_threadsafe(functools.partial(ours.basic_ack, tag))

    def take(_channel, method, _properties, body):
        threads.submit(check, method.delivery_tag, body)

    ours.basic_consume(QUEUE, take)
    ours.start_consuming()


def offer(rate, seconds, port, target):
    connection, ours = channel()
    persistent = pika.BasicProperties(delivery_mode=2)
    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        while sent < passed * rate:
            body = {"task_type": "url_check", "payload": {"url": url_of(target, port, sent)}, "interval_seconds": 60}
            ours.basic_publish("", QUEUE, json.dumps(body), persistent)
            sent += 1
        connection.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work()
    else:
        offer(float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
