"""One run from the call to the result: minimize, resume, the loop, restarts, snapshots, replay."""
