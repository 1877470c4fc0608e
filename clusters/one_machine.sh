#!/usr/bin/env bash
# A Ray head on this machine's loopback interface, with a token: `distxla run … --address` joins it instead of starting its own.
#
#   clusters/one_machine.sh .venv/bin/distxla run step.hlo --address 127.0.0.1:6399
#
# VENV: the environment's folder, where that is not the clone's .venv.
# Runs the command that follows with the address' token in its environment, and takes the head down when the command ends.
set -eu
[ $# -gt 0 ] || { echo "usage: $0 COMMAND …" >&2; exit 2; }
bin="${VENV:-$(cd "$(dirname "$0")/.." && pwd)/.venv}/bin"
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_worker_niceness=0 # Ray's workers are nice otherwise; devices are no background work
# --block: the head stays this script's child, so that ending it ends this head and no other
"$bin/ray" start --head --block --node-ip-address 127.0.0.1 --port "${DISTXLA_PORT:-6399}" \
  --include-dashboard false --disable-usage-stats >/dev/null 2>&1 &
head=$!
trap 'kill "$head" 2>/dev/null; wait "$head" 2>/dev/null || :' EXIT  # the status is the command's
for _ in $(seq 60); do
  "$bin/ray" status --address "127.0.0.1:${DISTXLA_PORT:-6399}" >/dev/null 2>&1 && break
  kill -0 "$head" 2>/dev/null || { echo "$0: no Ray head came up on port ${DISTXLA_PORT:-6399}; is it taken?" >&2; exit 1; }
  sleep 0.5
done
"$@"
