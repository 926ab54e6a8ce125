package result

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Machine is one of the two machines of a session.
type Machine struct {
	// Part is the part of the paths that the machine had: "server" or "client".
	Part string `json:"part"`
	// Address is how the laboratory reached it; empty for the laboratory's own
	// machine.
	Address string `json:"address,omitempty"`
	Host    Host   `json:"host"`
	Link    Link   `json:"link"`
}

// Link is the link of a machine that carried the traffic.
type Link struct {
	Name   string `json:"name"`
	Driver string `json:"driver,omitempty"`
	MTU    int    `json:"mtu"`
	// Speed is in bit/s; 0 if the driver does not report it.
	Speed float64 `json:"speed,omitempty"`
	// Offloads are the features of the driver that matter for the figures, by their
	// names in ethtool.
	Offloads map[string]bool `json:"offloads,omitempty"`
	// Filters are programs and rules of other software on the link, which may drop
	// packets.
	Filters []string `json:"filters,omitempty"`
	// Other is the traffic in bit/s that the link carried before the session.
	Other float64 `json:"other"`
}

// SumLedgers returns the sum of the ledgers of several machines, whose windows were
// open at the same time. Its wall time is the mean, weighted by CPUs.
func SumLedgers(all []Ledger) Ledger {
	var sum Ledger
	for _, l := range all {
		sum.Wall += l.Wall * float64(l.CPUs)
		sum.CPUs += l.CPUs
		sum.User += l.User
		sum.System += l.System
		sum.IRQ += l.IRQ
		sum.Soft += l.Soft
		sum.Steal += l.Steal
		sum.Idle += l.Idle
		sum.Busy += l.Busy
		sum.Client += l.Client
		sum.Server += l.Server
		sum.Proxy += l.Proxy
		sum.KernelThread += l.KernelThread
		sum.Laboratory += l.Laboratory
		sum.Other += l.Other
		sum.Unattributed += l.Unattributed
	}
	if sum.CPUs > 0 {
		sum.Wall /= float64(sum.CPUs)
	}
	if sum.Busy > 0 {
		sum.Error = math.Abs(sum.Unattributed) / sum.Busy
	}
	return sum
}

// Differences returns what differs between two machines and may affect the figures,
// one line each.
func Differences(a, b Machine) (all []string) {
	add := func(what string, x, y any) {
		if x != y {
			all = append(all, fmt.Sprintf("%s: %v (%s), %v (%s)", what, x, a.Part, y, b.Part))
		}
	}
	add("kernel", a.Host.Kernel, b.Host.Kernel)
	add("CPUs", a.Host.CPUs, b.Host.CPUs)
	add("CPU model", a.Host.CPUModel, b.Host.CPUModel)
	add("driver", a.Link.Driver, b.Link.Driver)
	add("speed in bit/s", a.Link.Speed, b.Link.Speed)
	add("MTU", a.Link.MTU, b.Link.MTU)
	for _, name := range keys(a.Link.Offloads, b.Link.Offloads) {
		add(name, a.Link.Offloads[name], b.Link.Offloads[name])
	}
	for _, name := range keys(a.Host.Features, b.Host.Features) {
		has, known := a.Host.Features[name]
		if other, both := b.Host.Features[name]; known && both {
			add("feature "+name, has, other)
		}
	}
	for _, name := range keys(a.Host.Settings, b.Host.Settings) {
		add(name, a.Host.Settings[name], b.Host.Settings[name])
	}
	return all
}

// keys returns the keys of both maps, in order.
func keys[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
