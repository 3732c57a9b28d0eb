"""A whole worker, at a server that says what the test wants it to."""

import asyncio
import json
import os
import signal
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mutirao_worker import Worker, mqtt, wire  # noqa: E402
from mutirao_worker.mqtt import packet, read_packet, text  # noqa: E402

PROGRAM = """
import sys
from mutirao_worker import Worker
worker = Worker("py-1", sys.argv[1])
@worker.action("nan")
def nan(data):
    return float("nan")
@worker.action("echo")
async def echo(data):
    return data
worker.run()
"""


class Server:
    """As much of MQTT as these tests need. Topics in `refused` may not be heard; `acknowledges` registrations or not."""

    def __init__(self, refused=(), acknowledges=True):
        self.refused, self.acknowledges, self.times = refused, acknowledges, []
        self.results, self.writer = asyncio.Queue(), None

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.talk, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        if self.writer:
            self.writer.close()

    async def talk(self, reader, writer):
        self.times.append(asyncio.get_running_loop().time())
        self.writer = writer
        try:
            while True:
                kind, _, body = await read_packet(reader)
                if kind == mqtt.CONNECT:
                    writer.write(packet(mqtt.CONNACK, 0, b"\0\0"))
                elif kind == mqtt.SUBSCRIBE:
                    writer.write(packet(mqtt.SUBACK, 0, body[:2] + bytes(self.granted(body[2:]))))
                elif kind == mqtt.PUBLISH:
                    self.published(body)
        except (asyncio.IncompleteReadError, OSError):
            pass

    def granted(self, wanted):
        while wanted:
            end = 2 + int.from_bytes(wanted[:2], "big")
            yield 0x80 if wanted[2:end].decode() in self.refused else wanted[end]
            wanted = wanted[end + 1 :]

    def published(self, body):
        end = 2 + int.from_bytes(body[:2], "big")
        topic, pid, said = body[2:end].decode(), body[end : end + 2], json.loads(body[end + 2 :])
        if topic == "mutirao.nodes.register":
            if not self.acknowledges:
                return self.writer.close()
            self.writer.write(packet(mqtt.PUBACK, 0, pid))
            self.say("mutirao.nodes.actions-list", {"token": "t", "nodeId": "py-1", "actions": said["actions"]})
        else:
            self.writer.write(packet(mqtt.PUBACK, 0, pid))
            self.results.put_nowait(said)

    def say(self, topic, said):
        self.writer.write(packet(mqtt.PUBLISH, 0, text(topic) + json.dumps(said).encode()))


class AWorker(unittest.IsolatedAsyncioTestCase):
    async def start(self, url):
        env = dict(os.environ, PYTHONPATH=str(ROOT))
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-c", PROGRAM, url, env=env, stderr=asyncio.subprocess.PIPE
        )
        self.addCleanup(lambda: worker.returncode is None and worker.kill())
        return worker

    async def hears(self, worker, words):
        async def lines():
            while words not in (line := (await worker.stderr.readline()).decode()):
                self.assertTrue(line, f"it ended and never said {words!r}")
            return line

        return await asyncio.wait_for(lines(), 30)

    async def ends(self, worker, within):
        worker.send_signal(signal.SIGTERM)
        await asyncio.wait_for(worker.wait(), within)
        self.assertEqual(worker.returncode, 0)

    async def test_it_says_that_it_is_registered_and_what_is_no_json_has_failed(self):
        async with Server() as server:
            worker = await self.start(server.url)
            await self.hears(worker, "py-1 is registered with echo, nan")
            asked = {"actionTo": "urn:mutirao:Action:nan", "requestID": "r", "messageData": "{}"}
            server.say("mutirao/node/py-1/in", asked)
            said = await asyncio.wait_for(server.results.get(), 30)
            self.assertIn("error", json.loads(said["messageData"]))
            await self.ends(worker, 10)

    async def test_who_hears_nothing_says_why_and_leaves_when_it_is_asked_to(self):
        async with Server(refused=["mutirao/node/py-1/in"]) as server:
            worker = await self.start(server.url)
            await self.hears(worker, "does not let it hear mutirao/node/py-1/in")
        await self.hears(worker, "broke: it was closed by the other side")
        await self.hears(worker, "the connection failed")
        await self.ends(worker, 10)

    async def test_who_is_cut_off_at_each_registration_comes_back_more_and_more_slowly(self):
        async with Server(acknowledges=False) as server:
            worker = await self.start(server.url)
            while len(server.times) < 5:
                await asyncio.sleep(0.02)
            # Pauses of a quarter, a half, one and two seconds, each at least half of that.
            self.assertGreater(server.times[4] - server.times[0], 1.8)
            await self.ends(worker, 10)

    async def test_a_server_that_is_not_there_is_waited_for(self):
        worker = await self.start("mqtt://127.0.0.1:1")
        await self.hears(worker, "127.0.0.1:1: the connection failed")
        await self.ends(worker, 10)

    async def test_what_cannot_work_is_refused_at_once(self):
        worker = Worker("n", "mqtt://h")
        worker.action("a")(print)
        with self.assertRaises(ValueError):
            worker.action("a", version=2)
        for slots in (0, 257):
            with self.assertRaises(ValueError):
                Worker("n", "mqtt://h", slots=slots)
        with self.assertRaises(ValueError):
            wire.result("a", "r", [float("inf")])


if __name__ == "__main__":
    unittest.main()
