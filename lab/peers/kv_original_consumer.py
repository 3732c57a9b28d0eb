"""The original's consumer: 50 messages prefetched, each applied to PostgreSQL in a transaction of its own if it is as new as
what is there, the cache updated if it holds the key, then acknowledged.
"""
import json
import os

import pika
import psycopg2
import redis

cache = redis.Redis.from_url(os.environ["REDIS"])
database = psycopg2.connect(os.environ["POSTGRES"])
with database, database.cursor() as cursor:
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS kv_store"
        " (key text PRIMARY KEY, value text NOT NULL, last_updated double precision NOT NULL)"
    )
parameters = pika.URLParameters(os.environ["AMQP"])
parameters.heartbeat = 0
channel = pika.BlockingConnection(parameters).channel()
channel.basic_qos(prefetch_count=50)


def add(channel, method, _properties, body):
    message = json.loads(body)
    with database, database.cursor() as cursor:
        cursor.execute(
            "INSERT INTO kv_store VALUES (%(key)s, %(value)s, %(timestamp)s)"
            " ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, last_updated = EXCLUDED.last_updated"
            " WHERE kv_store.last_updated <= EXCLUDED.last_updated",
            message,
        )
    if cache.exists(message["key"]):
        cache.set(message["key"], message["value"])
    channel.basic_ack(method.delivery_tag)


def remove(channel, method, _properties, body):
    message = json.loads(body)
    with database, database.cursor() as cursor:
        cursor.execute("DELETE FROM kv_store WHERE key = %(key)s AND last_updated <= %(timestamp)s", message)
    cache.delete(message["key"])
    channel.basic_ack(method.delivery_tag)


for queue, apply in (("add_key", add), ("del_key", remove)):
    channel.queue_declare(queue, durable=True)
    channel.basic_consume(queue, apply)
channel.start_consuming()
