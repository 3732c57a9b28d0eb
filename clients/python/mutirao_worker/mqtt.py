"""MQTT 3.1.1 over asyncio, as much of it as a worker needs: quality 0 and 1, a session that is kept, and a connection that comes
back by itself. What was said with quality 1 is said again until it is acknowledged."""

import asyncio
import logging
import random
import ssl
from urllib.parse import unquote, urlsplit

log = logging.getLogger("mutirao_worker")

KEEP_ALIVE_S = 30
PACKET_BYTES_MAX = 256 << 10
IN_FLIGHT_MAX = 16
PAUSE_MIN_S, PAUSE_MAX_S = 0.25, 10.0
# Who is let in and cut off at once is not let in more often for that.
STEADY_S = 10.0
CONNECT_S = 10.0

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 1, 2, 3, 4, 8, 9, 12, 13, 14


class Refused(Exception):
    pass


def reason(error):
    """Of a connection that failed, in words."""
    if isinstance(error, asyncio.IncompleteReadError):
        return "it was closed by the other side"
    if isinstance(error, asyncio.TimeoutError):
        return "nothing was heard"
    return str(error) or type(error).__name__


def text(value):
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def packet(kind, flags, body):
    length, head = len(body), bytearray([kind << 4 | flags])
    while True:
        digit, length = length & 0x7F, length >> 7
        head.append(digit | 0x80 if length else digit)
        if not length:
            return bytes(head) + body


async def read_packet(reader):
    head = (await reader.readexactly(1))[0]
    length = shift = 0
    while True:
        digit = (await reader.readexactly(1))[0]
        length |= (digit & 0x7F) << shift
        shift += 7
        if not digit & 0x80:
            break
        if shift > 21:
            raise ValueError("a packet whose length is none")
    if length > PACKET_BYTES_MAX:
        raise ValueError(f"a packet of {length} bytes")
    return head >> 4, head & 0x0F, await reader.readexactly(length)


class Mqtt:
    """`heard(topic, payload, ack)` is called for each message; what came with quality 1 is acknowledged by `ack()`."""

    def __init__(self, url, client_id, subscriptions, heard, connected, disconnected):
        parts = urlsplit(url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            raise ValueError("write it like mqtt://USER:PASSWORD@HOST:1883, mqtts://…:8883 or amqp://USER:PASSWORD@HOST/")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "mqtts" else None
        self._port = parts.port or (8883 if self._tls else 1883)
        self._user, self._password = parts.username, parts.password
        self._client_id = client_id
        self._subscriptions = subscriptions
        self._heard, self._connected, self._disconnected = heard, connected, disconnected
        self._writer = None
        self._pid = 0
        self._unacked = {}
        self._refused = []
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def publish(self, topic, payload):
        """Back once the server has acknowledged it, over any number of connections."""
        async with self._room:
            while True:
                self._pid = self._pid % 65535 + 1
                if self._pid not in self._unacked:
                    break
            pid, done = self._pid, asyncio.get_running_loop().create_future()
            body = text(topic) + pid.to_bytes(2, "big") + payload.encode()
            self._unacked[pid] = (body, done)
            try:
                self._send(packet(PUBLISH, 0x02, body))
                await done
            finally:
                self._unacked.pop(pid, None)

    async def run(self):
        """Connects, for as long as it is not cancelled."""
        now = asyncio.get_running_loop().time
        pause, told = PAUSE_MIN_S, None
        while True:
            since = None
            try:
                reader = await asyncio.wait_for(self._connect(), CONNECT_S)
                since = now()
                await self._talk(reader)
            except Refused as refused:
                why = f"the server does not let this worker in: {refused}"
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                why = f"the connection {'failed' if since is None else 'broke'}: {reason(error)}"
            finally:
                self._close()
            if since is not None and now() - since >= STEADY_S:
                pause, told = PAUSE_MIN_S, None
            if why != told:
                log.warning("%s:%s: %s; it is tried again and again", self._host, self._port, why)
                told = why
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, PAUSE_MAX_S)

    async def _connect(self):
        reader, self._writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        flags, body = 0, b""
        if self._user is not None:
            flags, body = flags | 0x80, body + text(unquote(self._user))
            if self._password is not None:
                flags, body = flags | 0x40, body + text(unquote(self._password))
        # The session is kept: what is sent while this is away waits.
        head = text("MQTT") + bytes([4, flags]) + KEEP_ALIVE_S.to_bytes(2, "big") + text(self._client_id)
        self._send(packet(CONNECT, 0, head + body))
        kind, _, answer = await read_packet(reader)
        if kind != CONNACK or len(answer) != 2:
            raise ValueError("no MQTT server")
        if answer[1]:
            raise Refused({4: "the user or the password is wrong", 5: "it may not come in"}.get(answer[1], answer[1]))
        return reader

    async def _talk(self, reader):
        wanted = b"".join(text(topic) + bytes([qos]) for topic, qos in self._subscriptions)
        self._send(packet(SUBSCRIBE, 0x02, b"\xff\xff" + wanted))
        for body, _ in list(self._unacked.values()):
            self._send(packet(PUBLISH, 0x0A, body))
        pinging = asyncio.ensure_future(self._ping())
        up = False
        try:
            while True:
                kind, flags, body = await asyncio.wait_for(read_packet(reader), KEEP_ALIVE_S * 1.5)
                if kind == SUBACK and not up:
                    up = True
                    self._warn_of_refused(body[2:])
                    self._connected()
                elif kind == PUBACK:
                    _, done = self._unacked.get(int.from_bytes(body[:2], "big"), (None, None))
                    if done and not done.done():
                        done.set_result(None)
                elif kind == PUBLISH:
                    self._message(flags, body)
        finally:
            pinging.cancel()
            if up:
                self._disconnected()

    def _warn_of_refused(self, granted):
        refused = [topic for (topic, _), code in zip(self._subscriptions, granted) if code == 0x80]
        if refused and refused != self._refused:
            log.warning("the server does not let it hear %s: is its user for another node?", ", ".join(refused))
        self._refused = refused

    def _message(self, flags, body):
        end = 2 + int.from_bytes(body[:2], "big")
        topic, qos = body[2:end].decode(), flags >> 1 & 3
        writer, ack = self._writer, lambda: None
        if qos:
            pid, end = body[end : end + 2], end + 2

            def ack():
                # Over the connection it came by: on another it comes again.
                if writer is self._writer:
                    self._send(packet(PUBACK, 0, pid))

        self._heard(topic, body[end:], ack)

    async def _ping(self):
        while True:
            await asyncio.sleep(KEEP_ALIVE_S / 2)
            self._send(packet(PINGREQ, 0, b""))

    def _send(self, data):
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    def _close(self):
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    async def leave(self):
        if self._writer is not None:
            self._send(packet(DISCONNECT, 0, b""))
            try:
                await asyncio.wait_for(self._writer.drain(), 1)
            except (OSError, asyncio.TimeoutError):
                pass
