package peer

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// The names of the engine's processes that do not publish ports, and of the
// laboratory's that are not part of it, in proc_pid_comm(5), which truncates
// names.
var (
	engineNames = []string{"dockerd", "containerd", "containerd-shim", "runc"}
	ownNames    = []string{"docker", "nsenter"}
)

// Memory implements rig.Containers. It adds up the proportional set sizes of the
// processes outside the containers.
func (d *docker) Memory(r *rig.Rig) (m rig.Memory, err error) {
	pids, err := r.ProxyPIDs()
	if err != nil {
		return m, fmt.Errorf("measure the memory of the container engine: %w", err)
	}
	for _, pid := range pids {
		name, size, err := program.Memory(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return m, fmt.Errorf("measure the memory of the container engine: %w", err)
		}
		if slices.Contains(ownNames, name) {
			continue
		}
		m.All += size
		if !slices.Contains(engineNames, name) {
			m.Publish += size
		}
		if name == "docker-proxy" {
			m.Proxies++
		}
	}
	return m, nil
}

// proxyTime returns the CPU time in ns of Fairlead's proxy in the engine's world.
func proxyTime(r *rig.Rig) (uint64, error) {
	pids, err := r.ProxyPIDs()
	for _, pid := range pids {
		args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if !strings.HasPrefix(string(args), "fairlead-proxy") {
			continue
		}
		n, err := strconv.Atoi(pid)
		if err != nil {
			return 0, err
		}
		seconds, err := ledger.ProcessTime(n)
		return uint64(1e9 * seconds), err
	}
	return 0, errors.Join(errors.New("find Fairlead's proxy: it does not run"), err)
}

// StartProof implements rig.Containers: docker-proxy has at least one process per
// port, or none.
func (d *docker) StartProof(r *rig.Rig, m rig.Memory) *result.Proof {
	p := d.Path
	if !d.plugin && !p.Direct && !p.NoProxy && p.Driver == model.DriverBridge {
		proof := &result.Proof{Counter: "docker-proxy processes", Want: uint64(r.Path.Ports), Got: uint64(m.Proxies)}
		proof.OK = proof.Got >= proof.Want
		return proof
	}
	return &result.Proof{Counter: "answers from the container", Want: 1, Got: 1,
		Absent: "docker-proxy processes", AbsentGot: uint64(m.Proxies), OK: m.Proxies == 0}
}
