package foreign_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"fairlead/test/foreign"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// ways are drivers, publish modes and data planes. Most hosts leave out those with eBPF
// programs, because loading these takes seconds.
var ways = struct{ drivers, modes, planes, withoutEBPF []string }{[]string{"bridge", "routed"},
	[]string{"ebpf", "auto", "nat", "proxy"}, []string{"ebpf", "auto", "nft"}, []string{"nat", "proxy"}}

// ebpfEvery is how many hosts there are for one with eBPF programs.
const ebpfEvery = 8

// TestHostIsReachedAsBefore compares the host's routes and addresses, and whether it
// reaches its router and is reached, before and after every command.
func TestHostIsReachedAsBefore(t *testing.T) {
	for i, driver := range ways.drivers {
		t.Run(driver, func(t *testing.T) {
			h := newHost(t)
			place.Serve(t, h.ns.Do, ":7", place.Hangup)
			place.Serve(t, h.router.Do, ":7", place.Hangup)
			for _, c := range commands(driver, ways.modes[i], ways.planes[i]) {
				h.keeps(c.name, func() { c.do(h) })
				for _, there := range []string{"198.51.100.1", "[2001:db8:1::1]", "[fe80::bad%wire0]"} {
					h.reaches(h.ns, there+":7")
				}
				for _, here := range []string{"198.51.100.2", "[2001:db8:1::2]"} {
					h.reaches(h.router, here+":7")
				}
				// The host still learns from its router.
				shell.Run(t, h.ns.Do, "ip -6 route del default")
				place.AwaitRouter(t, h.router.Do, "wire0", h.ns.Do, "ip -6 route show default | grep -q 'proto ra'")
			}
		})
	}
}

// together is how many seeds one host has: all but one before the first command, and one
// between two commands.
const together = 10

// TestForeignState runs every command beside what other programs have put on the host.
// FAIRLEAD_FOREIGN is the number of seeds, and FAIRLEAD_FOREIGN_FIRST the first one. With
// FAIRLEAD_FOREIGN_TOGETHER=1, each seed has a host of its own.
func TestForeignState(t *testing.T) {
	first, count := number(t, "FAIRLEAD_FOREIGN_FIRST", 1), number(t, "FAIRLEAD_FOREIGN", 2*together)
	group := number(t, "FAIRLEAD_FOREIGN_TOGETHER", together)
	accepted, total := 0, 0
	for seed := first; seed < first+count; seed += group {
		last := min(seed+group, first+count) - 1
		t.Run(fmt.Sprintf("%d-%d", seed, last), func(t *testing.T) {
			a, n := live(t, newHost(t), seed, last)
			accepted, total = accepted+a, total+n
		})
	}
	t.Logf("the host accepted %d of %d foreign commands", accepted, total)
	if accepted*3 < total {
		t.Errorf("most of the generated commands are not valid: %d of %d", accepted, total)
	}
}

// live runs the commands of an administrator with the foreign state of some seeds before
// and between them. It returns how many foreign commands the host accepted.
func live(t *testing.T, h *host, seed, last uint64) (accepted, total int) {
	t.Helper()
	choose := rand.New(rand.NewPCG(seed, 5))
	any := func(of []string) string { return of[choose.IntN(len(of))] }
	var all foreign.Set
	put := func(seed uint64) {
		set := foreign.Generate(seed)
		taken := set.Apply(t, h.ns.Do)
		all, accepted, total = append(all, taken...), accepted+len(taken), total+len(set)
	}
	mode, plane := any(ways.withoutEBPF), "nft"
	if choose.IntN(ebpfEvery) == 0 {
		mode, plane = any(ways.modes), any(ways.planes)
	}
	list := commands(any(ways.drivers), mode, plane)
	later := choose.IntN(len(list))
	for ; seed < last; seed++ {
		put(seed)
	}
	for i, c := range list {
		if i == later {
			put(last)
		}
		if h.keeps(c.name, func() { c.do(h) }); t.Failed() {
			t.Logf("after:\n%s", strings.Join(all, "\n"))
			return accepted, total
		}
	}
	return accepted, total
}

func number(t *testing.T, variable string, preset uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return preset
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("read %s: %v", variable, err)
	}
	return n
}
