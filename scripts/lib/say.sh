# shellcheck shell=bash
# Progress lines with timings, and the one way to give up. Sourced by scripts/test.

say() { printf '%s\n' "$*"; }

fail() {
  say "scripts/test: $*" >&2
  exit 1
}

# Runs a command as a named step: says when it begins, how long it took, and stops the run when it fails.
step() {
  local name=$1 began=$SECONDS status
  shift
  say "== $name"
  # Not as the condition of an `if`: bash would then ignore errors inside the step's function.
  set +e
  (set -e; "$@")
  status=$?
  set -e
  ((status == 0)) || fail "$name failed after $((SECONDS - began)) s"
  say "== $name: ok ($((SECONDS - began)) s)"
}
