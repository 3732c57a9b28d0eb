// A microcontroller as a node of Mutirão, over MQTT. Libraries: PubSubClient 2.8, ArduinoJson 7.
//
// It registers when it connects, when a manager asks for it, and every ten seconds until it is acknowledged; it takes
// messages on its own topic, runs what they name and says what came of it. stand_in.py beside it does the same within the
// same limits, and is what the tests run: keep the two alike.

#include <ArduinoJson.h>
#include <PubSubClient.h>
#include <WiFi.h>

#include "settings.h"  // WIFI_NAME, WIFI_PASSWORD, MQTT_HOST, MQTT_PORT, MQTT_USER, MQTT_PASSWORD: see settings.example.h

#define SPACE "mutirao"
#define URN "urn:" SPACE ":Action:"

static const uint16_t PACKET_BYTES = 2048;  // Managers send devices no longer packet.
static const uint16_t KEEP_ALIVE_S = 30;
static const unsigned long TRY_MS = 10000;
static const unsigned long SILENCE_MS = 30000;
static const uint8_t REMEMBERED = 8;

static const char* TOPIC_REGISTER = SPACE ".nodes.register";
static const char* TOPIC_ACK = SPACE ".nodes.actions-list";
static const char* TOPIC_RESULT = SPACE ".task.handler.saida";
static const char* TOPIC_BEAT = SPACE "/manager/available";
static const char* TOPIC_BEAT_DOTTED = SPACE ".manager.available";

WiFiClient wifi;
PubSubClient mqtt(wifi);

String node, topicIn, clientId;
bool registered = false;
unsigned long triedAt = 0, beatAt = 0;
// Requests that were answered lately: a message that comes twice is done once.
String remembered[REMEMBERED];
uint8_t nextRemembered = 0;

bool publish(const char* topic, const JsonDocument& said) {
  String text;
  serializeJson(said, text);
  return mqtt.publish(topic, text.c_str());  // Quality 0: PubSubClient knows no other. False if it is too long.
}

void registerNode() {
  JsonDocument said;
  said["endpoint"] = "";
  said["layer"] = "EDGE";
  said["type"] = "esp32";
  said["nodeId"] = node;
  said["forceRegister"] = true;
  JsonArray actions = said["actions"].to<JsonArray>();
  actions.add(URN "actions.read_sensor");
  actions.add(URN "actions.set_led");
  publish(TOPIC_REGISTER, said);
  triedAt = millis();
}

void answer(const char* action, const char* request, const JsonDocument& output) {
  String data;
  serializeJson(output, data);
  JsonDocument said;
  said["actionTo"] = action;
  said["requestID"] = request;
  said["messageData"] = data;  // A text of JSON, not an object.
  if (publish(TOPIC_RESULT, said)) return;
  // Once more on a new connection, as the network may just have gone.
  mqtt.disconnect();
  delay(50);
  connect();
  publish(TOPIC_RESULT, said);
}

bool isKnown(const String& request) {
  for (uint8_t i = 0; i < REMEMBERED; i++)
    if (remembered[i] == request) return true;
  remembered[nextRemembered] = request;
  nextRemembered = (nextRemembered + 1) % REMEMBERED;
  return false;
}

void run(const JsonDocument& message) {
  const char* action = message["actionTo"] | "";
  const char* request = message["requestID"] | "";
  if (isKnown(String(request) + action)) return;
  JsonDocument input, output;
  deserializeJson(input, message["messageData"] | "{}");
  if (strcmp(action, URN "actions.read_sensor") == 0) {
    output["value"] = analogRead(34);
    output["uptime_ms"] = millis();
  } else if (strcmp(action, URN "actions.set_led") == 0) {
    digitalWrite(LED_BUILTIN, input["on"].as<bool>() ? HIGH : LOW);
    output["on"] = input["on"].as<bool>();
  } else {
    output["error"] = "this node has no such action";
  }
  answer(action, request, output);
}

void heard(char* topic, byte* payload, unsigned int length) {
  JsonDocument said;
  if (deserializeJson(said, payload, length)) return;
  String place(topic);
  if (place == topicIn) {
    run(said);
  } else if (place == TOPIC_ACK) {
    if (node == (said["nodeId"] | "")) registered = true;
  } else if (said["available"] | true) {
    beatAt = millis();
    if (((said["forceRegister"] | false) || !registered) && millis() - triedAt >= TRY_MS) registerNode();
  }
}

void connect() {
  registered = false;
  if (!mqtt.connect(clientId.c_str(), MQTT_USER, MQTT_PASSWORD)) return;
  mqtt.subscribe(topicIn.c_str(), 1);
  mqtt.subscribe(TOPIC_ACK);
  mqtt.subscribe(TOPIC_BEAT);
  mqtt.subscribe(TOPIC_BEAT_DOTTED);
  beatAt = millis();
  registerNode();
}

void setup() {
  pinMode(LED_BUILTIN, OUTPUT);
  WiFi.begin(WIFI_NAME, WIFI_PASSWORD);
  while (WiFi.status() != WL_CONNECTED) delay(200);
  node = WiFi.macAddress();
  topicIn = String(SPACE "/node/") + node + "/in";
  clientId = String("esp32-") + node;
  mqtt.setServer(MQTT_HOST, MQTT_PORT);
  mqtt.setBufferSize(PACKET_BYTES);
  mqtt.setKeepAlive(KEEP_ALIVE_S);
  mqtt.setCallback(heard);
}

void loop() {
  if (!mqtt.connected()) {
    connect();
    if (!mqtt.connected()) {
      delay(2000);
      return;
    }
  }
  mqtt.loop();
  if (millis() - beatAt >= SILENCE_MS) registered = false;
  if (!registered && millis() - triedAt >= TRY_MS) registerNode();
}
