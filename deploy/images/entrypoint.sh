#!/bin/sh
# Engines start a container with flags of Beam's boot program, people with a command.
case "$1" in
  --*) exec /opt/apache/beam/boot "$@" ;;
  *) exec "$@" ;;
esac
