package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// The policies for a workload's bind to a port without a grant, as in
// bpf/include/workload.h.
const (
	UnpublishedLoopback = iota
	UnpublishedDeny
	UnpublishedAllow
)

// maxGrants is how many grants a workload can have, as in bpf/include/workload.h.
const maxGrants = len(bpf.FairleadWorkload{}.Grants)

// sharedName returns the kernel's name of the map of workloads. All Fairlead processes
// on the host share one map, so that workloads of different processes find each other.
// It ends with the last of these processes.
func sharedName(cookie uint64) string { return fmt.Sprintf("fl_wl_%x", cookie) }

// findShared opens the map of workloads that another process has created. Returns nil if
// there is none.
func findShared(cookie uint64) (*ebpf.Map, error) {
	id := ebpf.MapID(0)
	for {
		var err error
		id, err = ebpf.MapGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list eBPF maps: %w", err)
		}
		m, err := ebpf.NewMapFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			return nil, fmt.Errorf("open eBPF map %d: %w", id, err)
		}
		if info, err := m.Info(); err == nil && info.Name == sharedName(cookie) {
			return m, nil
		}
		m.Close()
	}
}

// WorkloadMap has the workloads whose socket calls are translated, by the id of their
// cgroup. All Fairlead processes of a host share it.
type WorkloadMap struct{ m *ebpf.Map }

// Workloads returns the workloads of the host.
func (p *Datapath) Workloads() WorkloadMap { return WorkloadMap{p.maps[bpf.FairleadMapFlWorkloads]} }

// All returns the workloads of the host by cgroup id, including those of other
// processes.
func (w WorkloadMap) All() (map[uint64]bpf.FairleadWorkload, error) {
	all := map[uint64]bpf.FairleadWorkload{}
	var id uint64
	var entry bpf.FairleadWorkload
	it := w.m.Iterate()
	for it.Next(&id, &entry) {
		all[id] = entry
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read workloads: %w", err)
	}
	return all, nil
}

// Set writes the workload's policy, and its grants from the table.
func (w WorkloadMap) Set(t *Table, cgroup uint64, unpublished uint32) error {
	entry := bpf.FairleadWorkload{Unpublished: unpublished}
	for _, l := range t.Mappings() {
		if l.Flags&MappingGrant == 0 || l.Cgroup != cgroup {
			continue
		}
		if int(entry.Count) == maxGrants {
			return fmt.Errorf("a workload can have %d grants, one for each publish and family: publish ranges instead",
				maxGrants)
		}
		entry.Grants[entry.Count] = grant(l)
		entry.Count++
	}
	slices.SortFunc(entry.Grants[:entry.Count], func(a, b bpf.FairleadGrant) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.ContainerFirst, b.ContainerFirst))
	})
	if err := w.m.Put(cgroup, entry); err != nil {
		return fmt.Errorf("set workload: %w", err)
	}
	return nil
}

func grant(l Mapping) bpf.FairleadGrant {
	g := bpf.FairleadGrant{Host: l.Host, HostFirst: l.First, ContainerFirst: l.ToFirst,
		ContainerLast: l.ToFirst + (l.Last - l.First), Class: l.Class}
	if l.Flags&MappingAny != 0 {
		g.Any = 1
	}
	return g
}

// Drop deletes a workload. An unknown one is no error.
func (w WorkloadMap) Drop(cgroup uint64) error {
	err := w.m.Delete(cgroup)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget workload: %w", err)
	}
	return nil
}

// Get returns the policy and grants of a workload, and whether it is known.
func (w WorkloadMap) Get(cgroup uint64) (found bpf.FairleadWorkload, known bool) {
	err := w.m.Lookup(cgroup, &found)
	return found, err == nil
}

// Taken returns a host port of the grant l that is also granted to the workload.
func Taken(w bpf.FairleadWorkload, l Mapping) (port uint16, taken bool) {
	for _, g := range w.Grants[:w.Count] {
		last := g.HostFirst + (g.ContainerLast - g.ContainerFirst)
		if g.Class == l.Class && g.HostFirst <= l.Last && l.First <= last &&
			(g.Any != 0 || l.Flags&MappingAny != 0 || g.Host == l.Host) {
			return max(g.HostFirst, l.First), true
		}
	}
	return 0, false
}
