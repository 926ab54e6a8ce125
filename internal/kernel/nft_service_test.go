package kernel

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

// served returns a service with one bucket per real server.
func served(name, vip string, s model.Scheduler, reals ...string) plan.NFTService {
	at := netip.MustParseAddrPort(vip)
	var backends []plan.Backend
	var ring []uint16
	for i, r := range reals {
		backends = append(backends, plan.Backend{At: netip.MustParseAddrPort(r), Weight: 1, Masquerade: i%2 == 1})
		ring = append(ring, uint16(i))
	}
	return plan.NFTService{Balanced: plan.Balanced{Service: name, Proto: model.TCP, Scheduler: s,
		Forward:   model.ForwardNAT,
		Frontends: []netip.AddrPort{at},
		Backends:  backends, Ring: ring}}
}

func with(s plan.NFTService, change func(*plan.NFTService)) plan.NFTService {
	change(&s)
	return s
}

// someServices returns services that use every kind of rule.
func someServices() []plan.NFTService {
	udp := func(s *plan.NFTService) { s.Proto = model.UDP }
	persistent := func(s *plan.NFTService) { s.Persistence = 5 * time.Minute }
	return []plan.NFTService{
		served("mh", "192.0.2.1:80", model.MaglevHashing, "10.0.0.2:8080", "10.0.0.3:8080"),
		served("mh 6", "[2001:db8::1]:80", model.MaglevHashing, "[fd00::2]:8080", "[fd00::3]:8080"),
		with(served("udp", "192.0.2.1:80", model.MaglevHashing, "10.0.0.2:8080", "10.0.0.3:8080"), udp),
		served("rr", "192.0.2.2:80", model.RoundRobin, "10.0.0.2:8080", "10.0.0.3:8080"),
		served("kept", "192.0.2.3:80", model.RoundRobin, "10.0.0.2:0"),
		served("sh", "192.0.2.4:80", model.SourceHashing, "10.0.0.2:8080"),
		served("none", "192.0.2.5:80", model.MaglevHashing),
		with(served("persistent", "192.0.2.6:80", model.RoundRobin, "10.0.0.2:8080", "10.0.0.3:8080"), persistent),
		with(served("persistent-6", "[2001:db8::6]:80", model.MaglevHashing, "[fd00::2]:8080"), persistent),
		with(with(served("persistent-kept", "192.0.2.7:80", model.SourceHashing, "10.0.0.2:0"), persistent), udp),
		with(served("persistent-none", "192.0.2.8:80", model.SourceHashing), persistent),
		with(served("none-udp", "[2001:db8::5]:80", model.MaglevHashing), udp),
	}
}

func services(all ...plan.NFTService) plan.Plan {
	p := plan.Plan{plan.ServiceTable{}}
	for _, s := range all {
		p = append(p, s)
	}
	return p
}

// reach changes the kernel from one plan to another, and fails unless the kernel
// then has the second one.
func (h *Host) reach(t *testing.T, have, want plan.Plan) {
	t.Helper()
	if err := h.nft.Transact(plan.Diff(have, want)); err != nil {
		t.Fatal(err)
	}
	h.holds(t, want)
}

func (h *Host) holds(t *testing.T, want plan.Plan) {
	t.Helper()
	found, err := h.Observe(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	if ops := plan.Diff(found, want); len(ops) != 0 {
		t.Fatalf("steps that are still missing:\n%s", plan.Text(ops))
	}
}

func TestServicesAreReadAsTheyWereSet(t *testing.T) {
	h := openTestHost(t)
	want := services(someServices()...)
	h.reach(t, nil, want)
	h.reach(t, want, nil)
	if left := h.run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestServicesChange changes a service into every other one under the same name.
func TestServicesChange(t *testing.T) {
	h := openTestHost(t)
	all := someServices()
	more := with(all[0], func(s *plan.NFTService) { s.Ring = []uint16{1, 1} })
	have := services(all[0])
	h.reach(t, nil, have)
	for _, s := range append(all, more, all[0]) {
		s.Service = all[0].Service
		next := services(s)
		h.reach(t, have, next)
		have = next
	}
	// Another service takes over the frontend.
	successor := all[0]
	successor.Frontends, successor.Service = have[1].(plan.NFTService).Frontends, "successor"
	h.reach(t, have, services(successor))
}

// TestServicesAreRepaired damages each part of the table.
func TestServicesAreRepaired(t *testing.T) {
	h := openTestHost(t)
	all := someServices()
	want := services(all...)
	h.reach(t, nil, want)
	for _, damage := range []string{
		"delete element inet fairlead-services reals-mh { 1 }",
		"delete element inet fairlead-services reals-mh { 0, 1 }; add element inet fairlead-services reals-mh { 0 : 10.0.0.2 . 8080, 1 : 10.66.6.6 . 1 }",
		"flush map inet fairlead-services services4",
		"add element inet fairlead-services services4 { 192.0.2.66 . tcp . 1 : goto service-mh }",
		"add element inet fairlead-services services4 { 192.0.2.66 . tcp . 1 : drop }",
		"add element inet fairlead-services frontends6 { 2001:db8::66 . tcp . 1 }",
		"flush map inet fairlead-services answers6",
		"flush chain inet fairlead-services service-rr",
		"insert rule inet fairlead-services service-rr drop",
		"add chain inet fairlead-services service-unknown",
		"flush chain inet fairlead-services keep-persistent",
		"add chain inet fairlead-services keep-mh",
		"flush map inet fairlead-services persistent4",
		"flush chain inet fairlead-services opened",
		"flush chain inet fairlead-services masqueraded",
		"add rule inet fairlead-services prerouting drop",
		"delete table inet fairlead-services",
	} {
		h.run(t, "nft", damage)
		found, err := h.Observe(want, want)
		if err != nil {
			t.Fatal(err)
		}
		ops := plan.Diff(found, want)
		if len(ops) == 0 {
			t.Errorf("not detected: nft %s", damage)
		}
		if err := h.nft.Transact(ops); err != nil {
			t.Fatalf("after nft %s: %v", damage, err)
		}
		h.holds(t, want)
	}
}

// TestServicesMatchTheirText creates the services with their printed commands and
// compares the result with what netlink creates.
func TestServicesMatchTheirText(t *testing.T) {
	h := openTestHost(t)
	all := someServices()
	want := services(all...)
	h.reach(t, nil, want)
	byNetlink := normalServices(h.run(t, "nft", "-s", "list", "table", "inet", plan.ServicesTable))
	h.reach(t, want, nil)
	h.run(t, "sh", "-c", plan.Text(plan.Diff(nil, want)))
	byText := normalServices(h.run(t, "nft", "-s", "list", "table", "inet", plan.ServicesTable))
	if diff := cmp.Diff(strings.Split(byText, "\n"), strings.Split(byNetlink, "\n")); diff != "" {
		t.Errorf("the commands' result (-) differs from netlink's (+):\n%s", diff)
	}
	changed := with(all[0], func(s *plan.NFTService) { s.Ring = []uint16{1, 1} })
	h.run(t, "sh", "-c", plan.Text([]plan.Op{{Object: changed, Old: all[0]}}))
	if list := h.run(t, "nft", "list", "map", "inet", plan.ServicesTable, changed.Reals()); strings.Contains(list,
		"10.0.0.2") {
		t.Errorf("the change has left the old real server: %s", list)
	}
	h.run(t, "sh", "-c", plan.Text(plan.Diff(want, services(changed))))
	h.run(t, "sh", "-c", plan.Text(plan.Diff(services(changed), nil)))
	if left := h.run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestInstalledServicesAreRead checks that the persistence and scheduler of
// installed services are read, which the explanation of a flow needs.
func TestInstalledServicesAreRead(t *testing.T) {
	h := openTestHost(t)
	all := someServices()
	h.reach(t, nil, services(all...))
	inUse, err := h.Inspect().InstalledServices()
	if err != nil || len(inUse) != len(all) {
		t.Fatalf("%d services of %d: %v", len(inUse), len(all), err)
	}
	for _, s := range all {
		i := slices.IndexFunc(inUse, func(o inspect.InstalledService) bool { return o.Service == s.Service })
		if want := s.Persistence; s.Remembers() && (inUse[i].Persistence != want || inUse[i].Scheduler != s.Scheduler) {
			t.Errorf("%s is read as %s %s", s.Service, inUse[i].Scheduler, inUse[i].Persistence)
		}
	}
}

// normalServices removes the differences between what netlink and nft(8) create:
// nft keeps the notation of a map's type, and loads a conntrack address either
// for one family or for any.
func normalServices(s string) string {
	s = regexp.MustCompile(` comment "fairlead[^"]*"`).ReplaceAllString(s, "")
	s = regexp.MustCompile(`type(of)? (numgen inc mod \d+|integer|0) : .*`).ReplaceAllString(s, "(the map of buckets)")
	s = regexp.MustCompile(`meta nfproto ipv[46] `).ReplaceAllString(s, "")
	s = regexp.MustCompile(`ct original (ip6? )?daddr`).ReplaceAllString(s, "ct original daddr")
	return normalizeNft(strings.ReplaceAll(s, "table inet fairlead-services", "table inet fairlead"))
}
