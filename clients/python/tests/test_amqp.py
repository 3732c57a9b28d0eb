"""Over AMQP, at a real RabbitMQ (MUTIRAO_TEST_AMQP) and with aio-pika; skipped without either."""

import asyncio
import json
import os
import sys
import unittest
import uuid
from pathlib import Path

try:
    import aio_pika
except ImportError:
    aio_pika = None

URL = os.environ.get("MUTIRAO_TEST_AMQP")
ROOT = Path(__file__).parents[1]
WORKER = """
import sys
from mutirao_worker import Worker
worker = Worker("py-1", sys.argv[1], namespace=sys.argv[2])
@worker.action("double", version=2)
def double(data):
    return data * 2
worker.run()
"""


@unittest.skipUnless(aio_pika and URL, "needs aio-pika and MUTIRAO_TEST_AMQP")
class Amqp(unittest.IsolatedAsyncioTestCase):
    async def test_it_registers_answers_and_acknowledges(self):
        space = f"ns{uuid.uuid4().hex[:8]}"
        connection = await aio_pika.connect(URL)
        async with connection:
            channel = await connection.channel()
            topic = await channel.get_exchange("amq.topic")
            heard = await channel.declare_queue(exclusive=True)
            for key in ("nodes.register", "task.handler.saida"):
                await heard.bind(topic, routing_key=f"{space}.{key}")
            env = dict(os.environ, PYTHONPATH=str(ROOT))
            worker = await asyncio.create_subprocess_exec(sys.executable, "-B", "-c", WORKER, URL, space, env=env)
            try:
                said = await self.next(heard)
                self.assertEqual((said["nodeId"], said["actions"]), ("py-1", [f"urn:{space}:Action:double@2"]))
                unicast = await channel.get_exchange(f"{space}.node.unicast")
                asked = {"actionTo": f"urn:{space}:Action:double", "requestID": "r1", "messageData": "21"}
                body = json.dumps(asked).encode()
                for _ in range(2):
                    await unicast.publish(aio_pika.Message(body, headers={"nodeId": "py-1"}), routing_key="")
                    self.assertEqual(await self.next(heard), asked | {"messageData": "42"})
            finally:
                worker.terminate()
                await worker.wait()
            own = await channel.declare_queue(f"{space}.node.unicast.py-1", durable=True)
            self.assertEqual(own.declaration_result.message_count, 0, "every message was acknowledged")
            await own.delete()
            await channel.exchange_delete(f"{space}.node.unicast")

    async def next(self, queue):
        for _ in range(1200):
            message = await queue.get(fail=False)
            if message:
                await message.ack()
                return json.loads(message.body)
            await asyncio.sleep(0.05)
        self.fail("nothing was heard")


if __name__ == "__main__":
    unittest.main()
