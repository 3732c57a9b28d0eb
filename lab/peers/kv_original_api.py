"""The original key-value API as its document describes it: FastAPI; a PUT or DELETE is published as a persistent message on
one connection that is kept, and answered as queued; a GET asks Redis, then PostgreSQL, and fills the cache.

Started by uvicorn, twice, behind nginx. It asks RabbitMQ for no confirmation, which makes it faster than it would be with.
"""
import json
import os
import threading
import time

import pika
import psycopg2.pool
import redis
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

app = FastAPI()
cache = redis.Redis.from_url(os.environ["REDIS"])
database = psycopg2.pool.ThreadedConnectionPool(1, 40, os.environ["POSTGRES"])
parameters = pika.URLParameters(os.environ["AMQP"])
parameters.heartbeat = 0
channel = pika.BlockingConnection(parameters).channel()
for queue in ("add_key", "del_key"):
    channel.queue_declare(queue, durable=True)
publishing = threading.Lock()
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Pair(BaseModel):
    key: str
    value: str


def publish(queue, message):
    with publishing:
        channel.basic_publish("", queue, json.dumps(message), PERSISTENT)
    return {"status": "queued"}


@app.put("/api")
async def put(pair: Pair):
    return publish("add_key", {"key": pair.key, "value": pair.value, "timestamp": time.time()})


@app.delete("/api")
async def delete(key: str):
    return publish("del_key", {"key": key, "timestamp": time.time()})


@app.get("/api")
def get(key: str):
    value = cache.get(key)
    if value is not None:
        return {"key": key, "value": value.decode()}
    connection = database.getconn()
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT value FROM kv_store WHERE key = %s", (key,))
            row = cursor.fetchone()
    finally:
        database.putconn(connection)
    if row is None:
        raise HTTPException(404)
    cache.set(key, row[0])
    return {"key": key, "value": row[0]}
