#!/bin/sh
# Asks the zygote for a worker: worker.sh REQUESTS COMMAND...
#
# The raylet runs this for each worker. The command is Ray's own, of a new interpreter. Where the zygote lives, a copy of
# it takes the command's place. The supervisor removes the FIFO when the zygote has ended, and then the command runs.
# One write of less than PIPE_BUF bytes, so that requests never mix; commands.py sees to the length, without a runtime
# environment. Opened for both, reading and writing, a FIFO never blocks.
requests=$1
shift
case "$*" in
*--serialized-runtime-env-context=*) ;;
*) [ -p "$requests" ] && printf '%s\0' "$#" "$RAY_JOB_ID" "$@" 1<>"$requests" && exit 0 ;;
esac
exec "$@"
