package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// machineLines describes the two machines of a session and what differs between them;
// nil if the session had one.
func machineLines(r *result.Report) (all []string) {
	for _, m := range r.Machines {
		all = append(all, fmt.Sprintf("%s's machine (%s): %s, %s, %s", m.Part, cmp.Or(m.Address, "this one"),
			kernel(m.Host.Kernel), plural(m.Host.CPUs, "CPU"), linkText(m.Link)))
	}
	if len(r.Differences) > 0 {
		all = append(all, "the machines differ: "+strings.Join(r.Differences, "; "))
	}
	return all
}

// linkText describes a link in one line.
func linkText(l result.Link) string {
	text := fmt.Sprintf("link %s (%s, %s), MTU %d, other traffic %s", l.Name, cmp.Or(l.Driver, "unknown driver"),
		speedText(l.Speed), l.MTU, bitRate(l.Other))
	var off []string
	for _, name := range slices.Sorted(maps.Keys(l.Offloads)) {
		if !l.Offloads[name] {
			off = append(off, name)
		}
	}
	if len(off) > 0 {
		text += ", without " + strings.Join(off, ", ")
	}
	return text
}

func speedText(bits float64) string {
	if bits == 0 {
		return "unknown speed"
	}
	return bitRate(bits)
}

// bitRate writes a number of bits per second.
func bitRate(bits float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if bits >= unit.size {
			return fmt.Sprintf("%.3g %s", bits/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f bit/s", bits)
}

// machineFacts lists the machines for the page.
func machineFacts(r *result.Report) (all []fact) {
	for _, m := range r.Machines {
		all = append(all, fact{m.Part + "'s machine", fmt.Sprintf("%s: %s, %d × %s", cmp.Or(m.Address, "this one"),
			kernel(m.Host.Kernel), m.Host.CPUs, cmp.Or(m.Host.CPUModel, "unknown model"))},
			fact{m.Part + "'s link", linkText(m.Link)})
	}
	for _, d := range r.Differences {
		all = append(all, fact{"difference", d})
	}
	return all
}
