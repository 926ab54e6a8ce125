package program

import (
	"os"
	"strconv"
	"strings"
)

// Memory returns a process's name and its proportional set size in bytes.
func Memory(pid string) (name string, size float64, err error) {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "", 0, err
	}
	rollup, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return strings.TrimSpace(string(comm)), kib * 1024, err
		}
	}
	return strings.TrimSpace(string(comm)), 0, nil // a process that ends has no pages
}
