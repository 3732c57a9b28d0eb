# shellcheck shell=bash
# The steps that are more than one command. Sourced by scripts/test.

# Everything that works without the network. Advisories need a fetch: `cargo deny check` does them too.
check_dependencies() {
  if cargo deny --version >/dev/null 2>&1; then
    cargo deny --offline --log-level error check bans licenses sources
  else
    say "skipped: cargo-deny is not installed (cargo install cargo-deny --locked)"
  fi
}

# The black-box tests drive the real binary and build nothing themselves.
build_for_tests() {
  cargo build --quiet --package mutirao --package mutirao-testkit --bins
}

target_directory() {
  cargo metadata --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/'
}

# beside_services COMMAND…
beside_services() {
  cargo build --quiet --package mutirao-testkit --bin services
  "$(target_directory)/debug/services" run -- "$@"
}

# last_step NAME FAST [--keep] -- COMMAND…: becomes the command, with the services beside it unless the run is fast.
last_step() {
  local name=$1 fast=$2
  shift 2
  say "== $name"
  if [[ $fast == yes ]]; then
    while [[ $1 != -- ]]; do shift; done
    shift
    exec "$@"
  fi
  cargo build --quiet --package mutirao-testkit --bin services
  exec "$(target_directory)/debug/services" run "$@"
}
