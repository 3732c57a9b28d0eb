"""What a worker does to become registered and to stay so: a machine without I/O, of the document's three states."""

from collections import deque

PAUSE_S = 10.0
SILENCE_S = 30.0
_BEATS_KEPT = 16


class Enrolment:
    """Each method answers whether a registration is to be sent now."""

    def __init__(self, node):
        self.node = node
        self.registered = False
        self._connected = False
        self._tried_at = None
        self._beat_at = None
        self._beats = deque(maxlen=_BEATS_KEPT)

    def connected(self, now):
        self._connected = True
        self._beat_at = now
        return self._ask(now)

    def disconnected(self):
        self._connected = False
        self.registered = False

    def acknowledged(self, ack):
        if self._connected and ack.get("nodeId") == self.node:
            self.registered = True

    def beat(self, beat, now):
        if not self._connected or not beat.get("available", True):
            return False
        ts = beat.get("ts", 0)
        if ts and ts in self._beats:
            return False
        self._beats.append(ts)
        self._beat_at = now
        return self._ask_patiently(now) if beat.get("forceRegister") or not self.registered else False

    def tick(self, now):
        if not self._connected:
            return False
        if now - self._beat_at >= SILENCE_S:
            self.registered = False
        return False if self.registered else self._ask_patiently(now)

    def _ask_patiently(self, now):
        return self._ask(now) if self._tried_at is None or now - self._tried_at >= PAUSE_S else False

    def _ask(self, now):
        self._tried_at = now
        return True
