package balance_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"

	"github.com/google/go-cmp/cmp"
)

// These tests concern only IPVS: the host has one IPVS table, which other programs use too.

// saved returns the table as ipvsadm prints it.
func (l *lan) saved() string {
	l.Helper()
	return l.sh(l.DoServer, "ipvsadm -S -n | sort")
}

// named returns a service in the form of ipvsadm's arguments.
func named(proto model.Proto, v4 bool, port uint16) string {
	return map[model.Proto]string{model.TCP: "-t ", model.UDP: "-u "}[proto] +
		netip.AddrPortFrom(vip(v4), port).String()
}

// typed returns the commands with which the plan creates its virtual services.
func (l *lan) typed(v model.VirtualService) string {
	l.Helper()
	s := l.state
	s.Services = []model.VirtualService{v}
	ops, err := l.Engine.Plan(s)
	if err != nil {
		l.Fatal(err)
	}
	ops = slices.DeleteFunc(ops, func(op plan.Op) bool { _, is := op.Object.(plan.IPVSService); return !is })
	return plan.Text(ops)
}

// foreign checks that services of other programs stay unchanged. Fairlead refuses a service at the
// address of another program's service, unless both are equal.
func (l *lan) foreign(proto model.Proto, v4 bool) {
	l.set()
	other, here := named(proto, v4, 9999), named(proto, v4, 8080)
	real := netip.AddrPortFrom(l.real("far1", v4).Address, 80)
	l.sh(l.DoServer, fmt.Sprintf("ipvsadm -A %s -s rr && ipvsadm -a %[1]s -r %s -m -w 3", other, real))
	alone := l.saved()
	l.sh(l.DoServer, "ipvsadm -A "+here+" -s rr")
	clash := l.saved()
	v := l.service(proto, v4, "a", "b")
	if err := l.trySet(v); err == nil || !strings.Contains(err.Error(), "is not Fairlead's") {
		l.Errorf("a service at the address of another program's service: %v", err)
	}
	if diff := cmp.Diff(clash, l.saved()); diff != "" {
		l.Errorf("the refusal has changed the table (-) to (+):\n%s", diff)
	}
	l.sh(l.DoServer, "ipvsadm -D "+here)

	l.sh(l.DoServer, l.typed(v))
	typed := l.saved()
	l.set(v)
	if diff := cmp.Diff(typed, l.saved()); diff != "" {
		l.Errorf("the table of the printed commands (-) differs from the one of the plan (+):\n%s", diff)
	}
	l.only(l.spread(l.DoClient, proto, v4, 30), "a", "b")
	l.set()
	if diff := cmp.Diff(alone, l.saved()); diff != "" {
		l.Errorf("without Fairlead's service the table was (-) and is (+):\n%s", diff)
	}
	l.sh(l.DoServer, "ipvsadm -D "+other)
}

// leftovers checks that changes by other programs are repaired, and that services that no plan
// contains are recognized by their mark.
func (l *lan) leftovers(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	l.set(v)
	want, here := l.saved(), named(proto, v4, 8080)
	a := netip.AddrPortFrom(v.Reals[0].Address, 80)
	host := l.newHost()
	l.observed(host)
	for _, harm := range []string{
		fmt.Sprintf("ipvsadm -e %s -r %s -m -w 7", here, a),
		fmt.Sprintf("ipvsadm -e %s -r %s -m -w 1 -x 5", here, a),
		fmt.Sprintf("ipvsadm -d %s -r %s", here, a),
		fmt.Sprintf("ipvsadm -a %s -r %s -m", here, netip.AddrPortFrom(a.Addr(), 81)),
		fmt.Sprintf("ipvsadm -E %s -s rr -p 60", here),
		"ipvsadm -D " + here,
		"ipvsadm -C",
	} {
		l.sh(l.DoServer, harm)
		l.notices(host, harm)
		if ops, err := l.Engine.Heal(context.Background()); err != nil || len(ops) != 1 {
			l.Errorf("after %s: %v, repaired with\n%s", harm, err, plan.Text(ops))
		}
		if diff := cmp.Diff(want, l.saved()); diff != "" {
			l.Errorf("after %s the table was (-) and is (+):\n%s", harm, diff)
		}
		l.observed(host)
	}
	l.edited(host, here, a, want)
	// The process was killed, and its state is lost.
	for _, o := range slices.Backward(l.observed(l.newHost())) {
		if err := host.Del(o); err != nil {
			l.Error(err)
		}
	}
	if left := l.saved(); left != "" {
		l.Errorf("left over: %s", left)
	}
	if _, err := l.Engine.Heal(context.Background()); err != nil {
		l.Error(err)
	}
}

// edited checks that a new process recognizes a service whose settings were changed in the meantime
// by its real servers. It must not recognize a service that another program created in its place.
func (l *lan) edited(host *kernel.Host, here string, real netip.AddrPort, want string) {
	l.Helper()
	service := l.observed(host)[0]
	l.sh(l.DoServer, fmt.Sprintf("ipvsadm -E %s -s rr -p 60", here))
	l.observed(l.newHost())
	if err := l.newHost().Set(service); err != nil {
		l.Errorf("a service of Fairlead that was edited: %v", err)
	}
	if diff := cmp.Diff(want, l.saved()); diff != "" {
		l.Errorf("after the edit the table was (-) and is (+):\n%s", diff)
	}
	l.sh(l.DoServer, fmt.Sprintf("ipvsadm -D %s && ipvsadm -A %[1]s -s rr && ipvsadm -a %[1]s -r %s -m", here, real))
	if found, err := l.newHost().Observe(nil, nil); err != nil || slices.ContainsFunc(found, isIPVS) {
		l.Errorf("another program's service is treated as Fairlead's: %v %v", found, err)
	}
	if err := l.newHost().Set(service); err == nil || !strings.Contains(err.Error(), "is not Fairlead's") {
		l.Errorf("another program's service in the place of Fairlead's: %v", err)
	}
	l.sh(l.DoServer, "ipvsadm -D "+here)
	if _, err := l.Engine.Heal(context.Background()); err != nil {
		l.Error(err)
	}
	l.observed(host)
}

func isIPVS(o plan.Object) bool {
	_, is := o.(plan.IPVSService)
	return is
}

// newHost opens the host's kernel again, without any state.
func (l *lan) newHost() *kernel.Host {
	l.Helper()
	host, err := kernel.Open(fmt.Sprintf("/proc/self/fd/%d", l.Server().Netns.Fd()), kernel.Options{})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { host.Close() })
	return host
}

// observed returns Fairlead's virtual services that are found without a plan.
func (l *lan) observed(host *kernel.Host) plan.Plan {
	l.Helper()
	found, err := host.Observe(nil, nil)
	if err != nil {
		l.Fatal(err)
	}
	found = slices.DeleteFunc(found, func(o plan.Object) bool { return !isIPVS(o) })
	if len(found) != 1 {
		l.Errorf("found %v", found)
	}
	return found
}

// notices fails the test unless the watcher reports a difference.
func (l *lan) notices(host *kernel.Host, harm string) {
	l.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := host.Watch(ctx)
	if err != nil {
		l.Fatal(err)
	}
	if !w.Check() {
		l.Errorf("%s is not reported", harm)
	}
	ours := plan.Plan{plan.IPVSService{}, plan.Table{}}
	if got := w.Take().Concerned(ours, func(string) int { return netns.NoID }); !slices.EqualFunc(got, ours[:1],
		plan.Equal) {
		l.Errorf("%s concerns %v", harm, got)
	}
}

// counts checks that the kernel's counters of a real server match its clients.
func (l *lan) counts(proto model.Proto, v4 bool) {
	v := l.service(proto, v4, "a", "b")
	v.Scheduler, v.Ports = model.RoundRobin, []model.PortRange{model.Port(8083)} // nothing is counted for this port yet
	l.set(v)
	host := l.newHost()
	l.observed(host)
	for range 6 {
		t, err := l.dial(l.DoClient, proto, v4, 8083)
		if err != nil {
			l.Fatal(err)
		}
		t.hears()
	}
	for deadline := time.Now().Add(place.Timeout); ; time.Sleep(100 * time.Millisecond) {
		wrong := ""
		for at, now := range l.figures(host) {
			open := now.Active
			if proto == model.UDP {
				open = now.Inactive
			}
			if now.Flows != 3 || open != 3 || now.InBytes == 0 || now.OutPackets < 3 {
				wrong += fmt.Sprintf("three conversations with %s are counted as %+v\n", at, now)
			}
		}
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			l.Fatal(wrong)
		}
	}
}

// figures returns the counters of the two servers of a service.
func (l *lan) figures(host *kernel.Host) map[netip.AddrPort]ipvs.RealStats {
	l.Helper()
	all, err := host.IPVS().Stats()
	if err != nil || len(all) != 2 {
		l.Fatalf("%+v, %v", all, err)
	}
	by := map[netip.AddrPort]ipvs.RealStats{}
	for _, s := range all {
		by[s.At] = s
	}
	return by
}

// fair checks that new flows go to the server with the fewest flows in proportion to its weight.
func (l *lan) fair(proto model.Proto, v4 bool) {
	if proto == model.UDP {
		return // no scheduler counts UDP flows as open
	}
	for _, s := range []model.Scheduler{model.ShortestExpectedDelay, model.NeverQueue} {
		v := l.service(proto, v4, "a", "b")
		v.Scheduler, v.Reals[1].Weight = s, 2
		l.set()
		l.set(v)
		with := map[string]int{}
		for _, c := range l.talks(proto, v4, 9) {
			with[c.with]++
		}
		if with["a"] != 3 || with["b"] != 6 {
			l.Errorf("%s: 9 flows are spread over %v", s, with)
		}
	}
}
