package facts

import (
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// NeighbourTable is the state of one of the kernel's neighbour tables, which all network
// namespaces share.
type NeighbourTable struct {
	// Setting is the sysctl with the maximum number of entries, and Limit its value.
	Setting string
	Limit   int
	Entries int
	// Overflows is how often the table was full since the boot.
	Overflows int
}

// neighbours reads the neighbour tables. Only the initial network namespace shows them:
// elsewhere there are none.
func neighbours(h *kernel.Host) (all []NeighbourTable) {
	for file, family := range map[string]string{"arp_cache": "ipv4", "ndisc_cache": "ipv6"} {
		t := NeighbourTable{Setting: "net." + family + ".neigh.default.gc_thresh3"}
		limit, err := h.Net().ReadSysctl(plan.Sysctl{Name: t.Setting})
		var text []byte
		if err == nil {
			t.Limit, err = strconv.Atoi(strings.TrimSpace(limit))
		}
		if err == nil {
			err = h.Do(func() (err error) {
				text, err = os.ReadFile("/proc/thread-self/net/stat/" + file)
				return err
			})
		}
		if err == nil && t.count(string(text)) {
			all = append(all, t)
		}
	}
	return all
}

// count reads the entries and overflows from a table of the kernel's statistics: a line
// with names, and a line per CPU with hexadecimal numbers. The number of entries is that
// of the whole table, on each line.
func (t *NeighbourTable) count(text string) bool {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		values := strings.Fields(line)
		if len(values) != len(names) {
			return false
		}
		for i, name := range names {
			n, err := strconv.ParseUint(values[i], 16, 32)
			switch {
			case err != nil:
				return false
			case name == "entries":
				t.Entries = int(n)
			case name == "table_fulls":
				t.Overflows += int(n)
			}
		}
	}
	return len(lines) > 1
}
