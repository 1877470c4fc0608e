#!/bin/sh
# Stands in for an agent of the raylet: agent.sh DRIVER DIRECTORY
#
# The raylet insists on its agents and gives each a pipe as standard input, whose end says that the raylet is gone.
# Where the supervisor was killed no other process takes the cluster's directory down: wait until the driver, which may still
# read the servers' messages, has done so or has ended, too.
cat >/dev/null
while [ -d "$2" ] && kill -0 "$1" 2>/dev/null; do sleep 0.1; done
rm -rf -- "$2"
