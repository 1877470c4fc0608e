#!/usr/bin/env bash
# Two or more hosts by hand: a Ray head on the first one, a node on each other one; they let in who has the same token.
#
#   first host:   clusters/by_hand.sh head                      makes ~/.ray/auth_token and says what comes next
#   other hosts:  copy that file there (scp, mode 0600), then:  clusters/by_hand.sh join FIRST_HOST:6399
#   first host:   RAY_AUTH_MODE=token .venv/bin/distxla run step.hlo --address FIRST_HOST:6399
#
# Both commands stay in the foreground, and Ctrl-C ends the node. Every host needs this project at the same version, the
# same type of CPU, and ports that the others reach; the network between them is one that you trust: the token keeps
# strangers out, but nothing is encrypted.
# DISTXLA_IP: this host's address, where Ray's own choice is wrong.  DISTXLA_PORT: of the head, 6399 by default.
# VENV: the environment's folder, where it is not the clone's .venv; hosts need the same version of Python, too.
# DISTXLA_CPUS: how many devices this node takes by default, as many as it has CPUs.
set -eu
usage() { echo "usage: $0 head | join HOST:PORT" >&2; exit 2; }
bin="${VENV:-$(cd "$(dirname "$0")/.." && pwd)/.venv}/bin"
token="${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$token"
export RAY_worker_niceness=0 # Ray's workers are nice otherwise; devices are no background work
options=(--block --disable-usage-stats)
[ -z "${DISTXLA_IP:-}" ] || options+=(--node-ip-address "$DISTXLA_IP")
[ -z "${DISTXLA_CPUS:-}" ] || options+=(--num-cpus "$DISTXLA_CPUS")
case "${1:-}" in
head)
  [ $# -eq 1 ] || usage
  if [ ! -s "$token" ]; then
    mkdir -p "$(dirname "$token")"
    (umask 077; od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$token")
  fi
  port="${DISTXLA_PORT:-6399}"
  echo "token in $token; on every other host: clusters/by_hand.sh join ${DISTXLA_IP:-$(hostname -f)}:$port"
  exec "$bin/ray" start --head --port "$port" --include-dashboard false "${options[@]}" >/dev/null
  ;;
join)
  [ $# -eq 2 ] || usage
  [ -s "$token" ] || { echo "$token is missing: copy it from the first host" >&2; exit 2; }
  exec "$bin/ray" start --address "$2" "${options[@]}" >/dev/null
  ;;
*) usage ;;
esac
