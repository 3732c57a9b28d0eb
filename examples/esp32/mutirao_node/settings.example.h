// Copy this to settings.h, which is yours and belongs in no repository.
#pragma once
#define WIFI_NAME "the network"
#define WIFI_PASSWORD "its password"
#define MQTT_HOST "192.168.1.10"
#define MQTT_PORT 1883
// One for each device; nullptr for both where devices are let in without (mqtt.allow_anonymous).
#define MQTT_USER "device-7"
#define MQTT_PASSWORD "its own"
