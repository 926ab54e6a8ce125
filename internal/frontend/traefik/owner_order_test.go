package traefik

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/model/gateway"
)

// effects returns what the routers of a configuration do, in the words of the model.
func effects(config gateway.Config, problems []Problem) []string {
	disabled := map[string]bool{}
	for _, p := range problems {
		if !p.Warning {
			disabled[p.Object] = true
		}
	}
	e := effect{config.HTTP, disabled}
	var all []string
	for name, r := range config.HTTP.Routers {
		text := r.Rule
		for _, m := range r.Middlewares {
			text += " " + e.middleware(m, nil)
		}
		if text += " " + e.balancer(r.Service); disabled["router "+name] || strings.Contains(text, "closed") {
			text = r.Rule + " closed"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

type effect struct {
	gateway.HTTP
	disabled map[string]bool
}

func (e *effect) middleware(name string, path []string) string {
	m := e.Middlewares[name]
	switch {
	case m == nil, e.disabled["middleware "+name], slices.Contains(path, name):
		return "closed"
	case m.Chain == nil:
		return m.AddPrefix.Prefix
	}
	var parts []string
	for _, part := range m.Chain.Middlewares {
		parts = append(parts, e.middleware(part, append(slices.Clone(path), name)))
	}
	return "(" + strings.Join(parts, " ") + ")"
}

func (e *effect) balancer(name string) string {
	s := e.Services[name]
	if s == nil || e.disabled["service "+name] {
		return "closed"
	}
	var servers []string
	for _, server := range s.LoadBalancer.Servers {
		servers = append(servers, strings.TrimSuffix(strings.TrimPrefix(server.URL, "http://"), ":80"))
	}
	slices.Sort(servers)
	short, _, _ := strings.Cut(strings.TrimSuffix(name, "@docker"), ".")
	return fmt.Sprintf("%s=%s%v", short, s.LoadBalancer.Strategy, servers)
}

// TestOwnersInAnyOrder compares what labels do with the model, after each of random events: containers
// that define the same names start, stop, become unhealthy and are deployed again. FAIRLEAD_OWNER_ORDERS
// is the number of orders.
func TestOwnersInAnyOrder(t *testing.T) {
	orders := 40
	if text := os.Getenv("FAIRLEAD_OWNER_ORDERS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("FAIRLEAD_OWNER_ORDERS=%s: want a number", text)
		}
		orders = n
	}
	base := rand.Uint64()
	var seen tally
	for order := range orders {
		w := newOwnerWorld(base + uint64(order))
		options := DockerOptions{}
		if w.scoped {
			options.LabelScope = gateway.LabelScopeProject
		}
		d := NewDocker(options)
		for step := range 40 {
			w.event()
			config, problems := d.Config(w.containers())
			got, want := effects(config, problems), w.expected()
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d, scoped %v:\n%s\nwant\n%s\nof\n%s", base+uint64(order), step, w.scoped,
					strings.Join(got, "\n"), strings.Join(want, "\n"), w)
			}
			w.checkOthers(t, options, got, &seen)
			if aged := effects(NewDocker(options).Config(w.otherAges())); !slices.Equal(got, aged) {
				t.Fatalf("seed %d, step %d: if the owners have other ages:\n%s\nwant\n%s", base+uint64(order), step,
					strings.Join(aged, "\n"), strings.Join(got, "\n"))
			}
			seen.add(want)
		}
	}
	if seen.open == 0 || seen.closed == 0 || seen.alone == 0 {
		t.Errorf("%+v: the orders do not cover what they should", seen)
	}
	t.Logf("%d orders from seed %d: %+v", orders, base, seen)
}

// tally counts what the orders have covered: routers in use, closed ones, and those that are the same
// without other owners.
type tally struct{ open, closed, alone int }

func (s *tally) add(flows []string) {
	for _, f := range flows {
		if strings.HasSuffix(f, "closed") {
			s.closed++
		} else {
			s.open++
		}
	}
}

// checkOthers checks that each router which works without the containers of other owners does the same
// with them.
func (w *world) checkOthers(t *testing.T, options DockerOptions, with []string, seen *tally) {
	t.Helper()
	byOwner := map[string][]*Container{}
	for _, c := range w.all {
		if c.running {
			byOwner[w.owner(c)] = append(byOwner[w.owner(c)], c.container())
		}
	}
	for of, list := range byOwner {
		for _, flow := range effects(NewDocker(options).Config(list)) {
			if strings.HasSuffix(flow, "closed") {
				continue
			}
			if seen.alone++; !slices.Contains(with, flow) {
				t.Fatalf("owner %q: the router %q is another with other owners:\n%s\nof\n%s", of, flow,
					strings.Join(with, "\n"), w)
			}
		}
	}
}

func (w *world) String() string {
	var b strings.Builder
	for _, c := range w.all {
		if c.running {
			fmt.Fprintf(&b, "%+v\n", *c)
		}
	}
	return b.String()
}
