"""A worker written from the document alone: aio-pika, its tables, and nothing of ours. Arguments: URL, namespace, its id."""
import asyncio
import json
import sys

import aio_pika

URL, SPACE, NODE = sys.argv[1:]


async def main():
    connection = await aio_pika.connect_robust(URL)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=16)
    topic = await channel.get_exchange("amq.topic")
    unicast = await channel.declare_exchange(f"{SPACE}.node.unicast", aio_pika.ExchangeType.HEADERS, durable=True)
    own = await channel.declare_queue(f"{SPACE}.node.unicast.{NODE}.python", durable=True)
    await own.bind(unicast, arguments={"x-match": "all", "nodeId": NODE})
    available = await channel.declare_exchange(f"{SPACE}.manager.available", aio_pika.ExchangeType.FANOUT, durable=True)
    beats, acks = [await channel.declare_queue(exclusive=True) for _ in range(2)]
    await beats.bind(available)
    await acks.bind(topic, routing_key=f"{SPACE}.nodes.actions-list")
    registered, seen = asyncio.Event(), set()

    async def say(key, what):
        await topic.publish(aio_pika.Message(json.dumps(what).encode()), routing_key=f"{SPACE}.{key}")

    async def on_beat(message):
        async with message.process():
            beat = json.loads(message.body)
            if beat["ts"] in seen or not beat["available"]:
                return
            seen.add(beat["ts"])
            if beat["forceRegister"] or not registered.is_set():
                await say("nodes.register", {
                    "endpoint": "", "layer": "CLOUD", "type": "PYTHON", "nodeId": NODE,
                    "forceRegister": beat["forceRegister"], "actions": [f"urn:{SPACE}:Action:actions.double"],
                })

    async def on_ack(message):
        async with message.process():
            ack = json.loads(message.body)
            if ack["nodeId"] == NODE and ack["token"]:
                registered.set()

    async def on_message(message):
        async with message.process():
            asked = json.loads(message.body)
            doubled = {"doubled": json.loads(asked["messageData"])["n"] * 2}
            # Before this none may come: whoever is not acknowledged is asked for nothing.
            await registered.wait()
            await say("task.handler.saida", {
                "actionTo": asked["actionTo"], "requestID": asked["requestID"], "messageData": json.dumps(doubled),
            })

    await beats.consume(on_beat)
    await acks.consume(on_ack)
    await own.consume(on_message)
    await asyncio.Future()


asyncio.run(main())
