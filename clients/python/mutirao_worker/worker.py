"""The worker itself: what it has, what it is asked, what it answers."""

import asyncio
import inspect
import json
import logging
import signal
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from . import wire
from .amqp import Amqp
from .enrolment import Enrolment
from .mqtt import Mqtt

log = logging.getLogger("mutirao_worker")

REMEMBERED_MAX = 512
IN_HAND_MAX = 256
LEAVE_S = 15.0
# Registrations without an answer, after which somebody should hear of it.
UNANSWERED = 3


class Failed(Exception):
    """Raised by an action: the task failed, and this is why."""


class Worker:
    def __init__(self, node, url, *, layer="fog", namespace="mutirao", labels=None, slots=16):
        self._node = wire.node_id(node)
        self._layer = wire.layer(layer)
        self._space = wire.namespace(namespace)
        self._places = wire.Places(self._space)
        self._url = url
        self._labels = dict(labels or {})
        self._slots = wire.slots(slots)
        # As many as may run: the loop's own are as few as the machine has processors.
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="action")
        self._actions = {}
        self._offers = {}
        self._enrolment = Enrolment(self._node)
        self._answers = OrderedDict()
        self._tasks = set()
        self._registering = None
        self._leaving = False
        self._unanswered = 0

    def action(self, name, *, version=0):
        """Makes a function an action. It is given its input and returns its output, or raises why it failed."""
        urn = wire.action_urn(self._space, name)
        if urn in self._actions:
            raise ValueError(f"{urn} is there already: one worker has one version of an action")

        def keep(function):
            self._actions[urn] = function
            self._offers[urn] = f"{urn}@{version}" if version else urn
            return function

        return keep

    def run(self):
        """Works until it is interrupted or asked to end; a second Ctrl-C ends it at once."""
        if not log.hasHandlers():
            log.addHandler(logging.StreamHandler())
            log.setLevel(logging.INFO)
        asyncio.run(self.serve())

    async def serve(self):
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stop, loop, stop)
        self._turns = asyncio.Semaphore(self._slots)
        self._line = self._make_line()
        working = [asyncio.ensure_future(self._line.run()), asyncio.ensure_future(self._tick())]
        stopped = asyncio.ensure_future(stop.wait())
        done, _ = await asyncio.wait([*working, stopped], return_when=asyncio.FIRST_COMPLETED)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVE_S)
        await self._line.leave()
        left = [*working, stopped, *self._tasks]
        left += [self._registering] if self._registering else []
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for one in done - {stopped}:
            one.result()

    def _stop(self, loop, stop):
        # What comes from now on is not acknowledged, and waits.
        self._leaving = True
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    def _make_line(self):
        hears = (self._heard, self._connected, self._enrolment.disconnected)
        if urlsplit(self._url).scheme in ("amqp", "amqps"):
            return Amqp(self._url, self._node, self._places, *hears)
        places = self._places
        subscriptions = [(places.device_topic(self._node), 1), (places.ack, 0), (places.beats, 0), (places.beats_topic, 0)]
        return Mqtt(self._url, f"python-{self._node}", subscriptions, *hears)

    def _connected(self):
        self._register_if(self._enrolment.connected(_now()))

    async def _tick(self):
        while True:
            await asyncio.sleep(1)
            self._register_if(self._enrolment.tick(_now()))

    def _register_if(self, asked):
        if asked:
            said = wire.register(self._node, self._layer, self._offers.values(), self._labels, self._slots)
            # One that is not through yet is said again by whoever carries it.
            if self._registering is None or self._registering.done():
                self._registering = asyncio.ensure_future(self._line.publish(self._places.register, said))
            self._unanswered += 1
            if self._unanswered == UNANSWERED:
                log.warning("nobody answers the registration of %s; `mutirao node rubbish` says why one is refused", self._node)

    def _heard(self, topic, payload, ack):
        place = topic.replace("/", ".")
        try:
            if place == self._places.beats:
                ack()
                self._register_if(self._enrolment.beat(json.loads(payload), _now()))
            elif place == self._places.ack:
                ack()
                self._acknowledged(json.loads(payload))
            else:
                self._take(wire.read_message(payload), ack)
        except (ValueError, AttributeError, UnicodeDecodeError) as error:
            log.warning("a message on %s is left: %s", topic, error)
            ack()

    def _acknowledged(self, ack):
        was = self._enrolment.registered
        self._enrolment.acknowledged(ack)
        if ack.get("nodeId") != self._node or not self._enrolment.registered:
            return
        self._unanswered = 0
        if not was:
            names = [str(action).rsplit(":Action:", 1)[-1] for action in ack.get("actions") or []]
            log.info("%s is registered with %s", self._node, ", ".join(names) or "no action")

    def _take(self, message, ack):
        action, request, data = message
        key = (request, action)
        if key in self._answers:
            ack()
            answer = self._answers[key]
            if answer is not None:
                self._spawn(self._line.publish(self._places.results, answer))
            return
        if self._leaving or len(self._tasks) >= IN_HAND_MAX:
            return  # Not acknowledged: it comes again.
        self._answers[key] = None
        self._spawn(self._work(key, data, ack))

    async def _work(self, key, data, ack):
        request, action = key
        async with self._turns:
            answer = await self._answer(action, request, data)
        self._answers[key] = answer
        for old in [one for one, said in self._answers.items() if said is not None][:-REMEMBERED_MAX]:
            del self._answers[old]
        await self._line.publish(self._places.results, answer)
        ack()

    async def _answer(self, action, request, data):
        function = self._actions.get(wire.without_version(action))
        if function is None:
            return wire.failure(action, request, f"this node has no {action}")
        try:
            if inspect.iscoroutinefunction(function):
                output = await function(data)
            else:
                output = await asyncio.get_running_loop().run_in_executor(self._threads, function, data)
            return wire.result(action, request, output)
        except Failed as failed:
            return wire.failure(action, request, failed)
        except Exception as error:  # Whatever an action raises is why it failed, not why the worker should.
            log.exception("%s failed", action)
            return wire.failure(action, request, f"{type(error).__name__}: {error}")

    def _spawn(self, work):
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _now():
    return asyncio.get_running_loop().time()
