package docker_test

import "time"

// startLimit is how long a daemon may take until it is ready, and endLimit how long it may take to end.
const startLimit, endLimit = 2 * time.Minute, time.Minute

// functions are what the scripts on a host can use.
//
//   - await COMMAND…: repeats a command until it succeeds, 3,000 times at most.
//   - killed PID…: kills processes, and waits until they have ended.
//   - ended PID: whether a process has ended. One that was killed has no /proc/PID/exe before the kernel closes its
//     files. It has closed them, and holds no port and no lock, when it has one thread and is a zombie, which its
//     parent may collect later.
const functions = `
await() {
	local tried=0
	until "$@"; do
		tried=$((tried + 1))
		[ $tried -lt 3000 ] || { echo "timeout: $*" >&2; exit 1; }
		sleep 0.02
	done
}
ended() {
	set -- $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p; s/^Threads:[[:space:]]*//p' /proc/$1/status 2>/dev/null)
	[ "${1-Z}" = Z ] && [ "${2-1}" = 1 ]
}
killed() {
	kill -9 "$@" 2>/dev/null || true
	for pid; do await ended $pid; done
}
`

// killAll kills the processes on the host whose program matches a pattern of the shell, and those that they start
// meanwhile. It returns when all have ended.
func (h *host) killAll(programs string) {
	h.Helper()
	h.sh(`
running() {
	for p in /proc/[0-9]*; do
		case "$(readlink $p/exe)" in (` + programs + `) echo ${p#/proc/} ;; esac
	done
}
none() {
	found=$(running)
	[ ! "$found" ] || { killed $found; false; }
}
await none`)
}

// daemonEnds waits until the daemon has ended.
func (h *host) daemonEnds() {
	h.Helper()
	select {
	case <-(*h.daemon).Done():
	case <-time.After(endLimit):
		h.Fatal("timeout: the daemon has not ended")
	}
}
