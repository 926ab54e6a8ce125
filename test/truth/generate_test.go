package truth

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// Generated is a host that a seed makes.
type Generated struct {
	Seed uint64
	// Documented is true if the host has only what the documentation of `fairlead
	// explain` says that it follows.
	Documented bool
	Commands   []string
	Flows      []string
}

// flowsPerHost is the number of flows through a generated host.
const flowsPerHost = 12

// Generate returns the host of a seed. Hosts of even seeds are documented.
func Generate(seed uint64) Generated {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 29)), documented: seed%2 == 0}
	for range 1 + g.IntN(4) {
		one(g, features)(g)
	}
	if !g.documented && g.IntN(2) == 0 {
		one(g, oddFeatures)(g)
	}
	out := Generated{Seed: seed, Documented: g.documented, Commands: g.commands}
	for range flowsPerHost {
		out.Flows = append(out.Flows, g.flow())
	}
	return out
}

// generator chooses with the random numbers of a seed.
type generator struct {
	*rand.Rand
	documented bool
	commands   []string
	// ports are the ports that commands use, besides 80.
	ports []string
	// tables counts the tables of nftables.
	tables int
}

func one[T any](g *generator, of []T) T { return of[g.IntN(len(of))] }

// features are what documented hosts have, oddFeatures what other hosts have too.
var (
	features = []func(*generator){(*generator).filter, (*generator).filter, (*generator).filter, (*generator).filter,
		(*generator).nat, (*generator).nat, (*generator).frames, (*generator).linkHooks, (*generator).iptables,
		(*generator).iptables, (*generator).routes, (*generator).bridges, (*generator).settings,
		(*generator).neighbours, (*generator).sockets, (*generator).linkChanges, (*generator).untracked,
		(*generator).marks}
	oddFeatures = []func(*generator){(*generator).oddRoutes, (*generator).oddBridges, (*generator).dynamicSets,
		(*generator).zones}
)

// add adds commands, with their placeholders filled in.
func (g *generator) add(commands ...string) {
	for _, c := range commands {
		g.commands = append(g.commands, g.fill(c))
	}
}

// values are what placeholders in commands stand for.
var values = map[string][]string{
	"v4": {"10.77.0.2", "10.77.0.2", "10.77.0.3", "10.78.0.2", "198.18.0.7", "10.77.0.1", "198.18.0.1", "10.78.0.1"},
	"net4": {"10.77.0.0/24", "10.76.0.0/14", "198.18.0.0/15", "10.77.0.2/31", "10.78.0.0/30", "0.0.0.0/1",
		"10.77.0.0/30"},
	"v6":    {"fd77::2", "fd77::3", "fd78::2", "fd18::7", "fd77::1", "fd18::1"},
	"net6":  {"fd77::/64", "fd70::/12", "fd18::/64", "fd77::2/127"},
	"box4":  {"10.77.0.2", "10.77.0.3", "10.78.0.2"},
	"box6":  {"fd77::2", "fd77::3", "fd78::2"},
	"port":  {"80", "80", "80", "8080", "81", "22"},
	"range": {"80-90", "1-1023", "8000-9000", "81-65535", "70-80"},
	"link":  {"eth0", "br0", "vc", "lo", "eth0", "br0"},
	"frame": {"pa", "pb"},
	"mark":  {"0x1", "0x10", "0x3", "0xf0", "7"},
	"place": {"a", "b", "c", "a", "b"},
	"n":     {"1", "2", "3", "4"},
}

var placeholder = regexp.MustCompile(`<[a-z0-9]+>`)

// fill replaces each placeholder with one of its values.
func (g *generator) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		of, ok := values[strings.Trim(name, "<>")]
		if !ok {
			panic("no values for " + name)
		}
		return one(g, of)
	})
}

// in prefixes a command with the place in which it runs; the host needs no prefix.
func (g *generator) in() string {
	if g.IntN(3) > 0 {
		return ""
	}
	return one(g, []string{"a ", "b ", "c "})
}

// flow returns a flow of the host.
func (g *generator) flow() string {
	six := map[bool]string{true: "6"}[g.IntN(10) < 3]
	from := one(g, []string{"lan", "lan", "host", "a", "a", "b", "c"})
	to := one(g, []string{"host", "host", "a", "b", "c"})
	for to == from {
		to = one(g, []string{"host", "a", "b", "c"})
	}
	target := to + six
	if from == "host" && g.IntN(6) == 0 {
		target = map[string]string{"": "127.0.0.1", "6": "::1"}[six]
	} else if to == "host" && g.IntN(5) == 0 {
		target = map[string]string{"": "10.77.0.1", "6": "fd77::1"}[six]
	}
	port := "80"
	switch n := g.IntN(8); {
	case n < 3 && len(g.ports) > 0:
		port = one(g, g.ports)
	case n == 7:
		port = one(g, []string{"81", "8080", "22"})
	}
	return fmt.Sprintf("%s%s to %s:%s%s", from, six, target, port, map[bool]string{true: "/udp"}[g.IntN(3) == 0])
}
