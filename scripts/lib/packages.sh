# shellcheck shell=bash
# Installs from Debian's packages what the tests need and this machine lacks. Sourced by scripts/test.
#
# What it is careful about: nothing is installed twice, the package lists are refreshed only when something is missing,
# no service is started or enabled (the tests start their own), and two runs at once wait for each other.

# "how to see that it is there" | "the packages that bring it"
readonly NEEDED=(
  'command -v cc                                     | gcc libc6-dev'
  'ls /usr/lib/rabbitmq/bin/rabbitmq-server          | rabbitmq-server'
  'ls /usr/lib/postgresql/*/bin/initdb               | postgresql'
  'command -v redis-server                           | redis-server'
  'command -v mosquitto_pub                          | mosquitto-clients'
  'ls /usr/sbin/sshd                                 | openssh-server'
  'command -v ssh                                    | openssh-client'
  'ls /usr/sbin/ip /sbin/ip                          | iproute2'
  'ls /usr/sbin/iptables /sbin/iptables              | iptables'
  'ls /usr/sbin/nginx                                | nginx-light'
  'command -v ps                                     | procps'
  'command -v setpriv                                | util-linux'
  'command -v curl                                   | curl'
  'command -v jq                                     | jq'
)
# The same, of what some tests are skipped without: where it cannot be had nothing fails.
readonly WELCOME=(
  '/usr/bin/python3 -c "import aio_pika; print(1)"   | python3-aio-pika'
)
# Units that these packages would enable for the next boot.
readonly UNITS=(rabbitmq-server postgresql redis-server mosquitto ssh nginx)
readonly POLICY=/usr/sbin/policy-rc.d
readonly PACKAGES_LOCK=/tmp/mutirao-test-packages.lock

missing_of() {
  local line
  for line; do
    # `ls` of several places is content with one of them.
    eval "${line%%|*}" 2>/dev/null | grep -q . || printf '%s ' "${line##*|}"
  done
}

install_missing_packages() {
  install_needed
  install_welcome
}

install_needed() {
  local missing
  missing=$(missing_of "${NEEDED[@]}")
  [[ -n ${missing// /} ]] || return 0
  if [[ $EUID -ne 0 ]]; then
    fail "these packages are missing: ${missing}; run 'apt-get install ${missing}' as root, or ./scripts/test --fast"
  fi
  command -v apt-get >/dev/null || fail "these packages are missing and there is no apt-get: ${missing}"
  (
    flock 9
    # Another run may have installed them while this one waited.
    missing=$(missing_of "${NEEDED[@]}")
    [[ -n ${missing// /} ]] || exit 0
    install_quietly "$missing"
  ) 9>"$PACKAGES_LOCK"
}

install_welcome() {
  local missing
  missing=$(missing_of "${WELCOME[@]}")
  [[ -n ${missing// /} && $EUID -eq 0 ]] && command -v apt-get >/dev/null || return 0
  (
    flock 9
    install_quietly "$missing"
  ) 9>"$PACKAGES_LOCK" || say "what needs ${missing% } is skipped"
}

# In a subshell of its own: its trap takes the policy away again, whatever happens.
install_quietly() {
  local packages unit log
  read -ra packages <<<"$1"
  log=$(mktemp)
  if [[ ! -e $POLICY ]]; then
    trap 'rm -f "$POLICY"' EXIT INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
  fi
  export DEBIAN_FRONTEND=noninteractive
  local apt=(apt-get -qq -y -o DPkg::Lock::Timeout=300)
  say "installing ${packages[*]}"
  if ! "${apt[@]}" install --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
    say "refreshing the package lists"
    { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${packages[@]}"; } >"$log" 2>&1 ||
      { tail -n 20 "$log" >&2; fail "the packages cannot be installed"; }
  fi
  rm -f "$log"
  [[ -d /run/systemd/system ]] || return 0
  for unit in "${UNITS[@]}"; do
    # Only what this very run installed: a unit that runs belongs to somebody.
    [[ " ${packages[*]} " == *" ${unit/#ssh/openssh-server} "* ]] || continue
    systemctl is-active -q "$unit" || systemctl disable -q "$unit" 2>/dev/null || true
  done
}
