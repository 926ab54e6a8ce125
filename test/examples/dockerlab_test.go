package examples_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	dockerlab      = "../../examples/ipvs-direct-routing.yaml"
	dockerlabProxy = "../../examples/ipvs-direct-routing-proxy.yaml"
	director       = "bananam2u1"
	vip            = "192.168.1.200"
	client         = "192.168.1.50"
)

var proxies = map[string]string{"raspberrypi0": "192.168.1.10", "raspberrypi1": "192.168.1.11",
	"raspberrypi2": "192.168.1.12", "raspberrypi3": "192.168.1.13"}

// TestIPVSDirectRouting runs the example with four reverse proxies behind one address. A proxy that
// fails is removed from the service, and so is one that answers only at its own address. Both are
// added again. In the end, nothing is left over.
func TestIPVSDirectRouting(t *testing.T) {
	hosts := map[string]string{director: "192.168.1.2", "tester": client}
	maps.Copy(hosts, proxies)
	l := newLAN(t, hosts)
	untouched := l.left("raspberrypi0")
	for name := range proxies {
		l.serve(name)
		if name != "raspberrypi3" {
			l.start(name)
			l.daemons[name].Run("apply", "-f", dockerlabProxy)
		}
	}
	l.sh("tester", "sysctl -qw net.ipv4.neigh.eth0.retrans_time_ms=20")
	if by, _, err := l.get("tester", vip+":443"); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("a proxy's host answers ARP requests for the virtual address: %q, %v", by, err)
	}
	// This host uses the rule of the original set-up.
	l.sh("raspberrypi3",
		"nft 'table ip website { chain prerouting { type nat hook prerouting priority dstnat; ip daddr 192.168.1.200 dnat to 192.168.1.13; }; }'")
	l.start(director)
	before := l.left(director)
	l.daemons[director].Run("apply", "-f", dockerlab)
	for _, at := range proxies {
		l.until("website", at, api.RealUp)
	}
	l.answer(slices.Collect(maps.Keys(proxies))...)

	_ = l.nginx["raspberrypi2"].Kill() // the exit status only shows that it was killed
	l.until("website", proxies["raspberrypi2"], api.RealDown)
	l.answer("raspberrypi0", "raspberrypi1", "raspberrypi3")
	l.serve("raspberrypi2")
	l.until("website", proxies["raspberrypi2"], api.RealUp)
	l.answer(slices.Collect(maps.Keys(proxies))...)

	l.daemons["raspberrypi0"].Run("destroy", "-f", dockerlabProxy)
	l.same("raspberrypi0", untouched)
	if r := l.until("website", proxies["raspberrypi0"], api.RealDown); !strings.Contains(r.Cause, "virtual address") {
		t.Errorf("%s is down because of %q, want: it lacks the virtual address", r.Address, r.Cause)
	}
	if by, _, err := l.get("tester", proxies["raspberrypi0"]+":443"); err != nil || by != "raspberrypi0" {
		t.Errorf("want an answer from raspberrypi0 at its own address, got %q: %v", by, err)
	}
	l.answer("raspberrypi1", "raspberrypi2", "raspberrypi3")
	l.daemons["raspberrypi0"].Run("apply", "-f", dockerlabProxy)
	l.until("website", proxies["raspberrypi0"], api.RealUp)
	l.answer(slices.Collect(maps.Keys(proxies))...)

	l.daemons[director].Run("destroy", "-f", dockerlab)
	l.same(director, before)
	for _, d := range l.daemons {
		d.Stop()
	}
}

// same fails the test unless a host is in the same state as before.
func (l *lan) same(host, before string) {
	l.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(l.left(host), "\n")); diff != "" {
		l.Errorf("the state of %s differs from before, was (-), is (+):\n%s", host, diff)
	}
}

// answer fails the test unless exactly these hosts answer requests to the virtual address, in turn,
// and receive the client's address. The order may restart when the table changes.
func (l *lan) answer(want ...string) {
	l.Helper()
	by := map[string]int{}
	for range 6 * len(want) {
		host, sees, err := l.get("tester", vip+":443")
		if err != nil {
			l.Errorf("a request fails while %v are up: %v", want, err)
		}
		if sees != client {
			l.Errorf("%s sees %q, want the client %s", host, sees, client)
		}
		by[host]++
	}
	for _, name := range want {
		if by[name] < 4 || len(by) != len(want) {
			l.Errorf("%s has answered %d times, want about 6, and answers from no other host: %v", name, by[name], by)
		}
	}
}

// left returns the configuration that an example could leave behind on a host.
func (l *lan) left(host string) string {
	l.Helper()
	return l.sh(host,
		"ip -o link | sed 's/qdisc [a-z]*//'; ip -o addr | grep -v fe80; ip route show table all | grep -v fe80; ip rule; ip -6 rule; nft list ruleset; tc filter show dev eth0 ingress;"+
			" tc qdisc show; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.ipv4.conf.all net.ipv4.conf.eth0")
}
