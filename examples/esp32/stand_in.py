#!/usr/bin/env python3
"""What mutirao_node.ino does, without a microcontroller: one thread, one connection, and the limits of PubSubClient. Packets longer
than its buffer are passed over without a word, it publishes with quality 0 only, and it forgets everything when it reconnects.

usage: DEVICE_PASSWORD=… stand_in.py NODE HOST:PORT [USER]
SPACE in the environment is the namespace, mutirao without. The password is there too: arguments are seen by everybody.
"""

import json
import os
import select
import socket
import sys
import time

PACKET_BYTES = 2048
KEEP_ALIVE_S = 30
TRY_S, SILENCE_S = 10, 30
REMEMBERED = 8
SPACE = os.environ.get("SPACE", "mutirao")
URN = f"urn:{SPACE}:Action:"


class PubSubClient:
    """As much of the library as the sketch uses, with its limits."""

    def __init__(self, host, port, heard):
        self.address, self.heard, self.socket = (host, port), heard, None

    def connect(self, client_id, user=None, password=None):
        self.disconnect()
        try:
            self.socket = socket.create_connection(self.address, timeout=15)
        except OSError:
            return False
        flags, body = 0x02, b""
        for given, flag in ((user, 0x80), (password, 0x40)):
            if given is not None:
                flags, body = flags | flag, body + self.text(given)
        self.write(0x10, self.text("MQTT") + bytes([4, flags, 0, KEEP_ALIVE_S]) + self.text(client_id) + body)
        answer = self.read_packet()
        if answer is None or answer[0] != 0x20 or answer[1][1] != 0:
            self.disconnect()
            return False
        self.last_out = time.monotonic()
        return True

    def connected(self):
        return self.socket is not None

    def disconnect(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def subscribe(self, topic, qos=0):
        self.write(0x82, b"\x00\x02" + self.text(topic) + bytes([qos]))

    def publish(self, topic, payload):
        body = self.text(topic) + payload
        if not self.socket or 5 + len(body) > PACKET_BYTES:
            return False
        return self.write(0x30, body)

    def loop(self, wait_s):
        if time.monotonic() - self.last_out >= KEEP_ALIVE_S:
            self.write(0xC0, b"")
        if self.socket and select.select([self.socket], [], [], wait_s)[0]:
            packet = self.read_packet()
            if packet is None:
                return
            head, body = packet
            if head & 0xF0 == 0x30:
                end = 2 + int.from_bytes(body[:2], "big")
                topic, pid = body[2:end].decode(), b""
                if head & 0x06:
                    pid, end = body[end : end + 2], end + 2
                self.heard(topic, body[end:])
                if pid:
                    self.write(0x40, pid)

    def read_packet(self):
        """None if the line broke, or if it would not fit the buffer: then it is gone."""
        try:
            head, length, shift = self.exactly(1)[0], 0, 0
            sizes = 0
            while True:
                digit = self.exactly(1)[0]
                sizes += 1
                length, shift = length | (digit & 0x7F) << shift, shift + 7
                if not digit & 0x80:
                    break
            body = self.exactly(length)
            return (head, body) if 1 + sizes + length <= PACKET_BYTES else None
        except OSError:
            self.disconnect()
            return None

    def exactly(self, many):
        got = b""
        while len(got) < many:
            piece = self.socket.recv(many - len(got))
            if not piece:
                raise OSError("closed")
            got += piece
        return got

    def write(self, head, body):
        length, size = len(body), bytearray()
        while True:
            digit, length = length & 0x7F, length >> 7
            size.append(digit | 0x80 if length else digit)
            if not length:
                break
        try:
            self.socket.sendall(bytes([head]) + bytes(size) + body)
        except (OSError, AttributeError):
            self.disconnect()
            return False
        self.last_out = time.monotonic()
        return True

    @staticmethod
    def text(value):
        raw = value.encode()
        return len(raw).to_bytes(2, "big") + raw


class Node:
    def __init__(self, node, host, port, *credentials):
        self.node, self.credentials = node, credentials
        self.topic_in = f"{SPACE}/node/{node}/in"
        self.mqtt = PubSubClient(host, port, self.heard)
        self.registered, self.tried_at, self.beat_at = False, 0.0, 0.0
        self.remembered, self.led = [], False

    def publish(self, place, said):
        return self.mqtt.publish(f"{SPACE}.{place}", json.dumps(said, separators=(",", ":")).encode())

    def register(self):
        actions = [URN + "actions.read_sensor", URN + "actions.set_led"]
        said = {"endpoint": "", "layer": "EDGE", "type": "esp32", "nodeId": self.node, "forceRegister": True}
        self.publish("nodes.register", said | {"actions": actions})
        self.tried_at = time.monotonic()

    def answer(self, action, request, output):
        said = {"actionTo": action, "requestID": request, "messageData": json.dumps(output, separators=(",", ":"))}
        if not self.publish("task.handler.saida", said):
            self.mqtt.disconnect()
            time.sleep(0.05)
            self.connect()
            self.publish("task.handler.saida", said)

    def run(self, message):
        action, request = message.get("actionTo", ""), str(message.get("requestID", ""))
        if request + action in self.remembered:
            return
        self.remembered = (self.remembered + [request + action])[-REMEMBERED:]
        given = json.loads(message.get("messageData", "{}"))
        if action == URN + "actions.read_sensor":
            output = {"value": 1234, "uptime_ms": int(time.monotonic() * 1000)}
        elif action == URN + "actions.set_led":
            self.led = bool(given.get("on"))
            output = {"on": self.led}
        else:
            output = {"error": "this node has no such action"}
        self.answer(action, request, output)

    def heard(self, topic, payload):
        try:
            said = json.loads(payload)
        except ValueError:
            return
        if topic == self.topic_in:
            self.run(said)
        elif topic == f"{SPACE}.nodes.actions-list":
            self.registered = self.registered or said.get("nodeId") == self.node
        elif said.get("available", True):
            self.beat_at = time.monotonic()
            if (said.get("forceRegister") or not self.registered) and self.beat_at - self.tried_at >= TRY_S:
                self.register()

    def connect(self):
        self.registered = False
        if not self.mqtt.connect(f"esp32-{self.node}", *self.credentials):
            return
        self.mqtt.subscribe(self.topic_in, 1)
        for topic in (f"{SPACE}.nodes.actions-list", f"{SPACE}/manager/available", f"{SPACE}.manager.available"):
            self.mqtt.subscribe(topic)
        self.beat_at = time.monotonic()
        self.register()

    def loop(self):
        if not self.mqtt.connected():
            self.connect()
            if not self.mqtt.connected():
                time.sleep(2)
                return
        self.mqtt.loop(0.2)
        now = time.monotonic()
        if now - self.beat_at >= SILENCE_S:
            self.registered = False
        if not self.registered and now - self.tried_at >= TRY_S:
            self.register()


def main():
    password = os.environ.get("DEVICE_PASSWORD")
    if len(sys.argv) not in (3, 4) or (len(sys.argv) == 4) != bool(password):
        sys.exit(__doc__)
    host, _, port = sys.argv[2].rpartition(":")
    credentials = (sys.argv[3], password) if password else ()
    node = Node(sys.argv[1], host, int(port), *credentials)
    while True:
        node.loop()


if __name__ == "__main__":
    main()
