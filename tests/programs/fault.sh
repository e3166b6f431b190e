#!/bin/sh
# fault.sh FAULT X [PROGRAM]: prints X like a good program; at X = 2.0 it does FAULT instead.
if [ "$2" != 2.0 ]; then
    sleep 0.05
    echo "$2"
    exit 0
fi
case "$1" in
none) echo 2.0 ;;
exit) echo 7; echo "mesh: 3 cells inverted" >&2; exit 2 ;;
tempfail) echo "no licence" >&2; exit 75 ;;
segfault) exec "$3" ;;
shell-segfault) sh -c 'kill -SEGV $$'; exit $? ;;
sigterm) kill -TERM $$ ;;
own-group) trap 'kill 0' EXIT; exit 3 ;;
sigkill) kill -KILL $$ ;;
nan) echo NaN ;;
inf) echo -inf ;;
nothing) ;;
garbled) echo 1.5; echo "segmentation of the mesh: done" ;;
escape) printf 'bad \033[2J line\n' ;;
binary) head -c 100000 /dev/urandom ;;
fail) echo "FAIL: solver diverged"; exit 1 ;;
hang) sleep 300 ;;
hang-in-child) sleep 300 & wait ;;
stubborn) trap '' TERM; echo "will not go" >&2; while :; do sleep 300; done ;;
endless) exec yes ;;
flood) yes | head -c 500000000; echo 3.5 ;;
flood-stderr) yes | head -c 30000000 >&2; echo 3.5 ;;
grandchild) sleep 300 & echo 4.5 ;;
daemon) setsid sleep 300 </dev/null >/dev/null 2>&1 & sleep 0.1; echo 5.5 ;;
daemon-with-stdout) setsid yes & sleep 0.1; echo 5.5; exit 3 ;;
results-pipe) mkfifo "$3" ;;
results-link) ln -s /etc/passwd "$3" ;;
results-directory) mkdir "$3" ;;
links) ln -s "$3" link; mkdir sub; ln -s "$3" sub/link; exit 1 ;;
*) echo "no such fault: $1" >&2; exit 99 ;;
esac
