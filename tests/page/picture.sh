#!/usr/bin/env bash
# Draws docs/page.png: the page of a server whose cores sleep between bursts of load. Takes 80 s; CORES selects the server's cores (default 0,1).
exec "$(dirname "$0")/run.sh" --picture
