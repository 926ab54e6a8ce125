package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead/internal/lab/program"

	"golang.org/x/sys/unix"
)

// ProxyMemory returns the memory in bytes of the processes that carry the path's
// traffic: the sum of their proportional set sizes; 0 if there are none.
func (r *Rig) ProxyMemory() (sum float64, err error) {
	pids, err := r.ProxyPIDs()
	for _, pid := range pids {
		_, size, e := program.Memory(pid)
		if errors.Is(e, os.ErrNotExist) || errors.Is(e, unix.ESRCH) {
			continue // it has ended
		}
		if err == nil && e != nil {
			err = fmt.Errorf("measure the memory of process %s: %w", pid, e)
		}
		sum += size
	}
	return sum, err
}

// ProxyPIDs lists these processes, of a container engine those outside the containers.
// Without cgroups, children of them are missing.
func (r *Rig) ProxyPIDs() ([]string, error) {
	if r.Groups != nil {
		text, err := os.ReadFile(filepath.Join(r.Groups.Proxy.Name(), "cgroup.procs"))
		return strings.Fields(string(text)), err
	}
	var pids []string
	for _, p := range r.processes {
		pids = append(pids, strconv.Itoa(p.Cmd.Process.Pid))
	}
	return pids, nil
}
