package cluster_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
	"fairlead/test/process"
)

// moving is a sandbox that moves between hosts with its address, and one that connects to it on each host.
type moving struct {
	*lan
	network string
	addr    netip.Addr
	// from are the sandboxes that connect, one per host.
	from []box
	// after and whole are how long it took until all of them reached it, after attach returned and after detach
	// began.
	after, whole []time.Duration
}

// newMoving creates a network with a sandbox on each host. The address that moves is in the block of the first
// host.
func newMoving(l *lan, network, driver, subnet string) *moving {
	l.Helper()
	l.hosts[0].Run("network", "create", network, "--cluster", "--driver", driver, "--subnet", subnet)
	m := &moving{lan: l, network: network}
	for _, h := range l.hosts {
		l.until(h.name+" has the network", func() bool { return h.hasNetwork(network) })
		m.from = append(m.from, l.boxAt(h, network))
	}
	m.addr = m.from[0].addr
	for range 8 {
		m.addr = m.addr.Next()
	}
	return m
}

// boxAt attaches a sandbox to a network.
func (l *lan) boxAt(h *host, network string, args ...string) box {
	l.Helper()
	b := box{Namespace: kerneltest.Netns(l)}
	path := process.Seen(b.Path())
	h.Run(append([]string{"attach", network, path}, args...)...)
	v := l.attached(h, path)
	b.name, b.addr = v.Name, v.Endpoint.Addresses[0]
	return b
}

// reached waits until the sandboxes of all hosts reach the address.
func (m *moving) reached() {
	m.Helper()
	var all sync.WaitGroup
	for _, from := range m.from {
		all.Go(func() {
			var err error
			for end := time.Now().Add(place.Timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
				_, err = place.Dial(from.Do, "tcp", net.JoinHostPort(m.addr.String(), "80"), 20*time.Millisecond)
				if errors.Is(err, syscall.ECONNREFUSED) { // nothing listens: the sandbox itself has answered
					return
				}
			}
			m.Errorf("%s does not reach the sandbox that moved: %v", from.addr, err)
		})
	}
	all.Wait()
}

// attach attaches a new sandbox with the address. All hosts reach it then.
func (m *moving) attach(h *host) box {
	m.Helper()
	b := m.boxAt(h, m.network, "--address", m.addr.String())
	m.reached()
	return b
}

// move ends the sandbox on one host, and starts it on another.
func (m *moving) move(b box, from, to *host) box {
	m.Helper()
	next := kerneltest.Netns(m)
	begun := time.Now()
	from.Run("detach", process.Seen(b.Path()))
	to.Run("attach", m.network, process.Seen(next.Path()), "--address", m.addr.String())
	returned := time.Now()
	m.reached()
	m.after, m.whole = append(m.after, time.Since(returned)), append(m.whole, time.Since(begun))
	return box{Namespace: next}
}

// TestSandboxMovesWithAddress moves a sandbox between hosts with its address, by command, after kill -9 of
// the daemon that has it, and after its host was removed from the cluster. It logs how long it takes, and limits
// it if FAIRLEAD_LIMITS is set.
func TestSandboxMovesWithAddress(t *testing.T) {
	l := newLAN(t)
	l.joined()
	one, two, three := l.hosts[0], l.hosts[1], l.hosts[2]
	all := []*moving{newMoving(l, "shop", "vxlan", "10.9.0.0/16"),
		newMoving(l, "store", "routed", "10.10.0.0/16")}
	var boxes []box
	for _, m := range all {
		b := m.attach(one)
		request := []string{"attach", m.network, process.Seen(b.Path()), "--address", m.addr.String()}
		l.refused(two, "on node host1 has it: detach that one", request...)
		for range 3 {
			b = m.move(b, one, two)
			l.refused(one, "on node host2 has it", request...)
			b = m.move(b, two, three)
			b = m.move(b, three, one)
		}
		b = m.claimed(b)
		t.Logf("%s: until all hosts reached it: at most %v after attach returned, %v after detach began",
			m.network, slices.Max(m.after), slices.Max(m.whole))
		within(t, "until all hosts reached the sandbox after detach began", slices.Max(m.whole), movedLimit)
		boxes = append(boxes, m.move(b, one, two))
	}
	two.Kill()
	for i, m := range all {
		m.reached()
		l.refused(three, "remove it from the cluster with `fairlead cluster rm host2`", "attach", m.network,
			process.Seen(boxes[i].Path()), "--address", m.addr.String())
	}
	one.Run("cluster", "rm", "host2", "--force")
	l.until("host3 knows that host2 is removed", func() bool { return len(three.status().Nodes) == 2 })
	for _, m := range all {
		m.from = []box{m.from[0], m.from[2]}
		m.attach(three)
	}
	l.etcd.Members[0].Kill()
	l.refused(one, "try again when etcd answers", "attach", "shop",
		process.Seen(kerneltest.Netns(t).Path()), "--address", all[0].from[1].addr.Next().String())
	all[0].reached()
}

// claimRounds is how often two hosts request an address at once until one of them gets it.
const claimRounds = 5

// claimed moves the sandbox from the first host to two others at once: exactly one gets it. It returns to
// the first host. A busy machine may answer so late that none gets it: then both try again.
func (m *moving) claimed(b box) box {
	m.Helper()
	addr := m.addr.String()
	m.hosts[0].Run("detach", process.Seen(b.Path()))
	namespaces, errs := []*netns.Namespace{kerneltest.Netns(m), kerneltest.Netns(m)}, make([]error, 2)
	said := make([]string, 2)
	for range claimRounds {
		var both sync.WaitGroup
		for i, h := range m.hosts[1:] {
			both.Go(func() {
				said[i], errs[i] = h.Try("attach", m.network, process.Seen(namespaces[i].Path()), "--address", addr)
			})
		}
		both.Wait()
		if errs[0] == nil || errs[1] == nil {
			break
		}
	}
	if (errs[0] == nil) == (errs[1] == nil) {
		m.Fatalf("two hosts request an address at once: %v, %v:\n%s\n%s", errs[0], errs[1], said[0], said[1])
	}
	winner := slices.Index(errs, nil)
	m.reached()
	return m.move(box{Namespace: namespaces[winner]}, m.hosts[1+winner], m.hosts[0])
}
