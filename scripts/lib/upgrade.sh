# shellcheck shell=bash
# Two programs taking each other's place in the middle of a job. Sourced by scripts/upgrade-test, which sets `old`, `new`
# and `work`.

readonly TASKS=3000
# Long enough to be in the middle of it, on a slow machine as well.
readonly COMMAND='sleep 0.05; echo $MUTIRAO_TASK_INDEX'
declare -A pids=()
fresh=0

# build_commit COMMIT FOLDER: prints the program's path. The worktree and its target folder are kept for the next time.
build_commit() {
  local commit=$1 folder=$2
  mkdir -p "$folder"
  if [[ -e $folder/tree ]]; then
    git -C "$folder/tree" checkout --quiet --detach "$commit"
  else
    git worktree prune
    git worktree add --quiet --detach "$folder/tree" "$commit"
  fi
  CARGO_TARGET_DIR=$folder/target cargo build --quiet --manifest-path "$folder/tree/Cargo.toml" --package mutirao >&2
  printf '%s\n' "$folder/target/debug/mutirao"
}

# Waits up to a minute for a command to succeed.
await() {
  local what=$1 tries
  shift
  for ((tries = 0; tries < 600; tries++)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  tail -n 20 "$work"/*.log >&2 || true
  fail "waited in vain for $what"
}

# Both programs are asked by the new one: the API is what an upgrade must keep too.
ask() { MUTIRAO_DATA=$data "$new" --json "$@"; }

# A database and a vhost that nobody has used, for the managers that start from here on.
fresh_services() {
  local name=upgrade_$$_$((++fresh)) management=$MUTIRAO_TEST_AMQP_MANAGEMENT
  psql --quiet --no-psqlrc --command "CREATE DATABASE $name" "$MUTIRAO_TEST_POSTGRES"
  # The test services' own user.
  curl --silent --fail --user guest:guest --request PUT "$management/api/vhosts/$name"
  curl --silent --fail --user guest:guest --request PUT --header 'content-type: application/json' \
    --data '{"configure":".*","write":".*","read":".*"}' "$management/api/permissions/$name/guest"
  export MUTIRAO_DATABASE=${MUTIRAO_TEST_POSTGRES%/*}/$name
  export MUTIRAO_BROKER=${MUTIRAO_TEST_AMQP%/*}/$name MUTIRAO_BROKER_MANAGEMENT=$management
}

# start_manager PROGRAM: on the same folder and address as the one before.
start_manager() {
  "$1" role manager --data "$data" --listen "${listen:-127.0.0.1:0}" >>"$work/manager.log" 2>&1 &
  pids[manager]=$!
  await "the manager of $1" ask job list
  listen=$(sed 's|.*//||' "$data/address")
}

# start_worker PROGRAM: with the identity of the one before.
start_worker() {
  local token=
  if [[ ! -e $work/worker/identity ]]; then token=$(ask worker invite | jq -r .token); fi
  MUTIRAO_ENROL_TOKEN=$token "$1" role worker --url "http://$listen" --dir "$work/worker" \
    --set worker.cpus=8 >>"$work/worker.log" 2>&1 &
  pids[worker]=$!
}

# By its number, kindly: a worker hands back what it has not begun, and finishes the rest.
end() {
  local pid=${pids[$1]:-}
  [[ -n $pid ]] || return 0
  kill -TERM "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  unset "pids[$1]"
}

end_all() {
  local name
  for name in worker manager; do end "$name"; done
}

ended() { ask job show "$job" | jq -e ".counts.ok >= $1"; }

# change_over NAME FIRST SECOND: begins with the old program as both, and replaces one after the other.
change_over() {
  local name=$1 role share=1 began=$SECONDS
  data=$work/data listen='' job=
  rm -rf "$data" "$work/worker"
  start_manager "$old"
  start_worker "$old"
  await "the worker" sh -c "MUTIRAO_DATA='$data' '$new' --json worker list | jq -e 'length > 0'"
  job=$(ask submit --array "1-$TASKS" -- sh -c "$COMMAND" | jq -r .id)
  for role in "$2" "$3"; do
    await "a part of the tasks" ended $((TASKS * share / 6))
    ended $((TASKS - 1)) >/dev/null 2>&1 && fail "$name: the job was over before the $role could be replaced"
    end "$role"
    "start_$role" "$new"
    share=$((share + 1))
  done
  MUTIRAO_DATA=$data timeout 300 "$new" job wait "$job" >/dev/null 2>&1 || fail "$name: the job did not end well"
  local counts
  counts=$(ask job show "$job" | jq -c .counts)
  [[ $(jq .ok <<<"$counts") == "$TASKS" ]] || fail "$name: not every task ended well: $counts"
  [[ $(MUTIRAO_DATA=$data "$new" job logs "$job" --task $TASKS) == "$TASKS" ]] ||
    fail "$name: the last task's output is not there"
  end_all
  say "$name: $TASKS of $TASKS tasks ended well ($((SECONDS - began)) s)"
}
