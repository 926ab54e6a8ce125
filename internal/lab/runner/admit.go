package runner

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/suite"
)

// minMemory is the memory in bytes that a session needs for its processes, their
// buffers and the packets in flight. engineMemory is what each Docker engine needs
// in addition.
const (
	minMemory    = 200 << 20
	engineMemory = 200 << 20
)

// Admit returns an error if the machine has too little memory for a session of the
// suite. If it has enough, Admit removes the cgroups that killed laboratories left
// behind, and returns their names. Namespaces are already gone: only the dead
// process kept them open.
func Admit(s suite.Suite) (swept []string, err error) {
	need := minMemory + engineMemory*uint64(engines(s))
	if free, err := memory("MemAvailable"); err == nil && free < need {
		return nil, fmt.Errorf("%d MB of memory are available, but the laboratory needs %d MB: end other processes, or "+
			"measure fewer paths", free>>20, need>>20)
	}
	return ledger.Sweep()
}

// engines returns the number of Docker engines that a session of the suite needs.
func engines(s suite.Suite) int {
	engines := map[string]bool{}
	for _, name := range s.Paths {
		if p, _ := suite.FindPath(name); p.Peer.InDocker {
			engines[fmt.Sprint(p.Plain, p.MTU)] = true
		}
	}
	return len(engines)
}

// memory reads a line of /proc/meminfo, in bytes.
func memory(key string) (uint64, error) {
	kib, err := strconv.ParseUint(strings.TrimSuffix(field("/proc/meminfo", key), " kB"), 10, 64)
	return kib << 10, err
}

// Engine returns an error if a directory for a Docker engine's programs has no
// dockerd. An empty dir means PATH, and is not checked.
func Engine(dir string) error {
	if dir == "" {
		return nil
	}
	if _, err := exec.LookPath(filepath.Join(dir, "dockerd")); err != nil {
		return fmt.Errorf("docker %s: want a directory with dockerd: %w", dir, err)
	}
	return nil
}
