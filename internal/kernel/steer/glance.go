package steer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// Glance returns the leads that a host's pinned plane holds, and the workloads
// of all processes of ours there, without loading a program or changing
// anything.
func Glance(opt Options) (leads []Lead, workloads map[uint64]bpf.FairleadWorkload, err error) {
	leads, errLeads := pinnedLeads(opt.Pins)
	workloads, errWorkloads := glanceWorkloads(opt.Cookie)
	return leads, workloads, errors.Join(errLeads, errWorkloads)
}

func pinnedLeads(pins string) ([]Lead, error) {
	maps := map[string]*ebpf.Map{}
	defer closeAll(maps)
	for _, name := range []string{bpf.FairleadMapPorts, bpf.FairleadMapLeads} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "maps", name), nil)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("open pinned map %s: %w", name, err)
		}
		maps[name] = m
	}
	if int(maps[bpf.FairleadMapLeads].ValueSize()) != leadSize {
		return nil, errors.New("read the eBPF table: it is another version's: use the fairlead that the daemon runs")
	}
	t, err := openTable(maps)
	if err != nil {
		return nil, err
	}
	return t.Leads(), nil
}

func glanceWorkloads(cookie uint64) (map[uint64]bpf.FairleadWorkload, error) {
	m, err := findShared(cookie)
	if m == nil || err != nil {
		return nil, err
	}
	defer m.Close()
	return (&Plane{maps: map[string]*ebpf.Map{bpf.FairleadMapWorkloads: m}}).Workloads()
}
