package process

import (
	"os"
	"runtime/debug"
)

// collectPercent is the percentage of the live heap that the daemon may allocate between two garbage collections.
// It idles most of the time, so it has time for twice as many collections as by default, and stays smaller.
const collectPercent = 50

// collectOften makes the garbage collector keep the daemon small. It changes nothing if the environment sets GOGC.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectPercent)
	}
}
