package health

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
)

// A pool is written as its servers, "address weight", with the administrator's
// state and, after a colon, the result of the checks.
func TestEffective(t *testing.T) {
	sorry := netip.MustParseAddrPort("192.0.2.99:80")
	for _, c := range []struct {
		name    string
		service model.VirtualService
		servers string
		want    string
	}{
		{"all are up", model.VirtualService{}, "1 2: up, 2 1: up", "1 2, 2 1"},
		{"one is down", model.VirtualService{}, "1 1: down, 2 1: up", "1 1 down, 2 1"},
		{"all are down", model.VirtualService{}, "1 1: down, 2 1: down", "empty: 1 1 down, 2 1 down"},
		{"not known yet", model.VirtualService{}, "1 1, 2 1", "1 1, 2 1"},
		{"states of the administrator stay", model.VirtualService{}, "1 1 draining: down, 2 1 down: up, 3 1: up",
			"1 1 draining, 2 1 down, 3 1"},
		{"no real server", model.VirtualService{}, "", "empty: "},
		{"only the sorry server gets new flows", model.VirtualService{Sorry: sorry, Quorum: 2},
			"1 1: down, 2 1: up, 3 1 draining: up",
			"sorry: 1 1 down, 2 1 draining, 3 1 draining, 99:80 1"},
		{"the quorum is met", model.VirtualService{Sorry: sorry, Quorum: 2}, "1 1: up, 2 1: up, 3 1: down",
			"1 1, 2 1, 3 1 down"},
		{"a quorum without a sorry server", model.VirtualService{Quorum: 2}, "1 1: up, 2 1: down", "1 1, 2 1 down"},
		{"no quorum is one", model.VirtualService{Sorry: sorry}, "1 1: up, 2 1: down", "1 1, 2 1 down"},
		{"a server of weight 0 does not count", model.VirtualService{Sorry: sorry}, "1 0: up, 2 1: down",
			"sorry: 1 0 draining, 2 1 down, 99:80 1"},
		{"panic uses all", model.VirtualService{Panic: 50}, "1 1: up, 2 1: down, 3 1: down", "panic: 1 1, 2 1, 3 1"},
		{"failures of all checks do not empty the pool", model.VirtualService{Panic: 1, Sorry: sorry},
			"1 1: down, 2 1: down", "panic: 1 1, 2 1"},
		{"half is enough for fifty percent", model.VirtualService{Panic: 50}, "1 1: up, 2 1: down", "1 1, 2 1 down"},
		{"panic keeps states of the administrator", model.VirtualService{Panic: 80},
			"1 1 down: up, 2 1: down, 3 1 draining: down", "panic: 1 1 down, 2 1, 3 1 draining"},
		{"slow starts and agents count in hundredths", model.VirtualService{Check: model.Check{Agent: 9}},
			"1 1: up 5, 2 1: up, 3 2: up 150, 4 1: up 0", "1 5, 2 100, 3 300, 4 0"},
		{"great weights keep their ratio", model.VirtualService{Check: model.Check{SlowStart: 1}},
			"1 65535: up, 2 1: up 5, 3 32768: up", "1 65535, 2 1, 3 32768"},
		{"an agent's drain", model.VirtualService{}, "1 1: draining, 2 1: up", "1 1 draining, 2 1"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			v := c.service
			view := reals(t, &v, c.servers)
			before := v.Clone()
			got := Effective(v, view)
			if text := written(got, Judge(v, view).Mode); text != c.want {
				t.Errorf("the pool is\n\t%s, want\n\t%s", text, c.want)
			}
			if !v.Equal(before) {
				t.Errorf("the service was changed: %+v", v)
			}
		})
	}
}

func reals(t *testing.T, v *model.VirtualService, text string) View {
	said := map[netip.Addr]Condition{}
	for one := range strings.SplitSeq(text, ", ") {
		if one == "" {
			continue
		}
		spec, check, checked := strings.Cut(one, ": ")
		r := model.RealServer{}
		var last byte
		if n, err := fmt.Sscan(spec, &last, &r.Weight, &r.State); n < 2 {
			t.Fatal(err)
		}
		r.Address = netip.AddrFrom4([4]byte{192, 0, 2, last})
		v.Reals = append(v.Reals, r)
		if checked {
			c := Condition{Share: 100}
			_, _ = fmt.Sscan(check, &c.State, &c.Share)
			if c.State == "up" {
				c.State = model.RealUp
			}
			said[r.Address] = c
		}
	}
	return func(r model.RealServer) (Condition, bool) {
		c, ok := said[r.Address]
		return c, ok
	}
}

func written(v model.VirtualService, mode Mode) string {
	var all []string
	for _, r := range v.Reals {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %d %s", strings.TrimPrefix(r.String(), "192.0.2."),
			r.Weight, r.State)))
	}
	text := strings.Join(all, ", ")
	if mode != "" {
		text = string(mode) + ": " + text
	}
	return text
}

// TestSorryInPool checks that a sorry server that is also a real server is used once.
func TestSorryInPool(t *testing.T) {
	v := model.VirtualService{Sorry: netip.MustParseAddrPort("192.0.2.1:80"), Reals: []model.RealServer{
		{Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 3},
		{Address: netip.MustParseAddr("192.0.2.2"), Port: 80, Weight: 3}}}
	got := Effective(v, func(model.RealServer) (Condition, bool) { return Condition{State: model.RealDown}, true })
	if text := written(got, ""); text != "2:80 3 down, 1:80 1" {
		t.Errorf("the pool is %s", text)
	}
}
