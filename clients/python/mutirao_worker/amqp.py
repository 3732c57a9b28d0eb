"""The same over AMQP, by aio-pika, which reconnects by itself."""

import asyncio
import logging

log = logging.getLogger("mutirao_worker")

PREFETCH = 16
PAUSE_S = 5.0


class Amqp:
    """As mqtt.Mqtt, with the queue of its own that the wire wants of workers."""

    def __init__(self, url, node, places, heard, connected, disconnected):
        try:
            import aio_pika
        except ImportError:
            raise SystemExit("amqp:// needs aio-pika: pip install mutirao-worker[amqp]") from None
        self._pika = aio_pika
        self._url, self._node, self._places = url, node, places
        self._heard, self._connected, self._disconnected = heard, connected, disconnected
        self._topic = None
        self._ready = asyncio.Event()

    async def publish(self, key, payload):
        message = self._pika.Message(
            payload.encode(), content_type="application/json", delivery_mode=self._pika.DeliveryMode.PERSISTENT
        )
        while True:
            await self._ready.wait()
            try:
                # Confirmed: aio-pika's channels are, unless told otherwise.
                return await self._topic.publish(message, routing_key=key, mandatory=False)
            except (self._pika.exceptions.AMQPError, OSError, RuntimeError):
                await asyncio.sleep(0.5)

    async def run(self):
        async with await self._connect() as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            self._topic = await channel.get_exchange("amq.topic")
            exchange = await channel.declare_exchange(self._places.unicast, self._pika.ExchangeType.HEADERS, durable=True)
            own = await channel.declare_queue(self._places.unicast_queue(self._node), durable=True)
            await own.bind(exchange, arguments={"x-match": "all", "nodeId": self._node})
            news = await channel.declare_queue(exclusive=True, auto_delete=True)
            for key in (self._places.ack, self._places.beats):
                await news.bind(self._topic, routing_key=key)
            await own.consume(self._taken)
            await news.consume(self._news, no_ack=True)
            connection.close_callbacks.add(lambda *_: self._lost())
            connection.reconnect_callbacks.add(lambda *_: self._up())
            self._up()
            await asyncio.Future()

    async def _connect(self):
        """aio-pika comes back by itself once it was there; the first time is ours."""
        told = None
        while True:
            try:
                return await self._pika.connect_robust(self._url)
            except (self._pika.exceptions.AMQPError, OSError, asyncio.TimeoutError) as error:
                why = str(error) or type(error).__name__
            if why != told:
                log.warning("RabbitMQ cannot be reached: %s; it is tried again and again", why)
                told = why
            await asyncio.sleep(PAUSE_S)

    async def _taken(self, message):
        self._heard(self._places.device_topic(self._node), message.body, lambda: asyncio.ensure_future(message.ack()))

    async def _news(self, message):
        self._heard(message.routing_key, message.body, lambda: None)

    def _up(self):
        self._ready.set()
        self._connected()

    def _lost(self):
        self._ready.clear()
        self._disconnected()

    async def leave(self):
        pass
