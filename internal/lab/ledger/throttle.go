package ledger

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead/internal/cgroup"
)

// readThrottled returns for how long CPU limits have stopped this process and the
// parties, in seconds. The parties are children of this process: in cgroup v1,
// which groups by controller, they share its group; in v2 they have their own.
// Without the file there is no limit.
func readThrottled(p Parties) float64 {
	var sum float64
	for _, party := range []Party{p.Client, p.Server, p.Proxy} {
		if party.Cgroup == nil {
			continue
		}
		if keys, err := readCPUStat(party.Cgroup); err == nil {
			sum += throttledIn(keys)
		}
	}
	for _, file := range ourCPUStats() {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if keys, err := parseKeys(string(text)); err == nil {
			sum += throttledIn(keys)
		}
	}
	return sum
}

// throttledIn reads cpu.stat: µs in cgroup v2, ns in v1.
func throttledIn(keys map[string]uint64) float64 {
	return float64(keys["throttled_usec"])/1e6 + float64(keys["throttled_time"])/1e9
}

// ourCPUStats lists the cpu.stat files of this process's cgroup and of its
// ancestors, each of which may have a limit.
func ourCPUStats() []string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var files []string
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, ok := cpuHierarchy(parts[1])
		for at := parts[2]; ok && at != "/" && at != "."; at = path.Dir(at) {
			files = append(files, filepath.Join(root, at, "cpu.stat"))
		}
	}
	return files
}

// cpuHierarchy returns the mount point of the hierarchy with these controllers, if
// it limits CPU time; v2 lists none.
func cpuHierarchy(controllers string) (root string, ok bool) {
	if controllers == "" {
		root, err := cgroup.Root()
		return root, err == nil
	}
	for _, c := range strings.Split(controllers, ",") {
		if c == "cpu" {
			return filepath.Join("/sys/fs/cgroup", controllers), true
		}
	}
	return "", false
}

// readThermal returns how often cores were throttled because of heat. Not every
// CPU reports this.
func readThermal() uint64 {
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
	if err != nil {
		return 0
	}
	var sum uint64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			sum += n
		}
	}
	return sum
}
