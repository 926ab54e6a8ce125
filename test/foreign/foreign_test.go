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
				if h.keeps(c.name, func() { c.do(h) }); c.reads {
					continue
				}
				for _, there := range []string{"198.51.100.1", "[2001:db8:1::1]", "[fe80::bad%wire0]"} {
					h.reaches(h.ns, there+":7")
				}
				for _, here := range []string{"198.51.100.2", "[2001:db8:1::2]"} {
					h.reaches(h.router, here+":7")
				}
				h.last = "" // The host still learns from its router:
				shell.Run(t, h.ns.Do, "ip -6 route del default")
				place.AwaitRouter(t, h.router.Do, "wire0", h.ns.Do, "ip -6 route show default | grep -q 'proto ra'")
			}
		})
	}
}

// together is how many seeds one host has: all but one before the first command, and one
// between two commands.
const together = 10

// TestForeignState runs every command of a host beside what other programs have put on it.
// FAIRLEAD_FOREIGN is the number of seeds, and FAIRLEAD_FOREIGN_FIRST the first one. With
// FAIRLEAD_FOREIGN_TOGETHER=1, each seed has a host of its own.
func TestForeignState(t *testing.T) {
	generated(t, together, func(t *testing.T, first, last uint64) life {
		choose := rand.New(rand.NewPCG(first, 5))
		any := func(of []string) string { return of[choose.IntN(len(of))] }
		mode, plane := any(ways.withoutEBPF), "nft"
		if choose.IntN(ebpfEvery) == 0 {
			mode, plane = any(ways.modes), any(ways.planes)
		}
		return newHost(t).live(commands(any(ways.drivers), mode, plane), choose, first, last)
	})
}

// TestForeignStateOfNode runs every command of a node of a cluster beside what other
// programs have put on its host. The variables are those of TestForeignState.
func TestForeignStateOfNode(t *testing.T) {
	generated(t, together/2, func(t *testing.T, first, last uint64) life {
		choose := rand.New(rand.NewPCG(first, 6))
		return newNode(t).live(nodeCommands(), choose, first, last)
	})
}

// life is what happened to a host.
type life struct {
	// accepted are the foreign commands that the host accepted, of all.
	accepted, all int
	// cut is true if what others have put on the host cuts it off from etcd.
	cut bool
}

// generated runs lives beside generated foreign state.
func generated(t *testing.T, preset uint64, one func(t *testing.T, first, last uint64) life) {
	t.Helper()
	first, count := number(t, "FAIRLEAD_FOREIGN_FIRST", 1), number(t, "FAIRLEAD_FOREIGN", preset)
	group := number(t, "FAIRLEAD_FOREIGN_TOGETHER", together)
	var sum life
	lives, cut := 0, 0
	for seed := first; seed < first+count; seed += group {
		last := min(seed+group, first+count) - 1
		t.Run(fmt.Sprintf("%d-%d", seed, last), func(t *testing.T) {
			l := one(t, seed, last)
			sum.accepted, sum.all, lives = sum.accepted+l.accepted, sum.all+l.all, lives+1
			if l.cut {
				cut++
			}
		})
	}
	t.Logf("%d hosts accepted %d of %d foreign commands; %d hosts were cut off from etcd", lives, sum.accepted, sum.all, cut)
	if sum.accepted*3 < sum.all {
		t.Errorf("most of the generated commands are not valid: %d of %d", sum.accepted, sum.all)
	}
	if cut*2 > lives {
		t.Errorf("%d of %d hosts were cut off from etcd", cut, lives)
	}
}

// live runs the commands of an administrator with the foreign state of some seeds before
// and between them.
func (h *host) live(list []command, choose *rand.Rand, seed, last uint64) (l life) {
	h.Helper()
	var all foreign.Set
	put := func(seed uint64) {
		h.last = ""
		set := foreign.Generate(seed)
		taken := set.Apply(h, h.ns.Do)
		all, l.accepted, l.all = append(all, taken...), l.accepted+len(taken), l.all+len(set)
		l.cut = l.cut || !h.reachesOthers()
	}
	later := choose.IntN(len(list))
	for ; seed < last; seed++ {
		put(seed)
	}
	for i, c := range list {
		if i == later {
			put(last)
		}
		if l.cut {
			return l
		}
		if h.keeps(c.name, func() { c.do(h) }); h.Failed() {
			h.Logf("after:\n%s", strings.Join(all, "\n"))
			return l
		}
	}
	return l
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
