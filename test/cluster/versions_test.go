package cluster_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/test/daemons"
	"fairlead/test/etcd"
	"fairlead/test/place"
)

// The versions of TestTwoVersions.
const (
	earlier = "0.9.0"
	later   = "0.10.0"
)

// shared is their virtual address.
var shared = netip.MustParseAddr("192.0.2.10")

// upgrade restarts the daemon of a host as another version, which reaches etcd at the endpoints.
func (l *lan) upgrade(h *host, version string, endpoints ...string) {
	l.Helper()
	h.Stop()
	h.Version = version
	h.Start()
	h.Run("cluster", "etcd", "--etcd", strings.Join(endpoints, ","))
	for _, shows := range l.hosts {
		l.until(fmt.Sprintf("%s shows %s with version %s", shows.name, h.name, version), func() bool {
			n := shows.node(h.name)
			return n.Alive && n.Version == version
		})
	}
}

// written fails the test unless the later version has written a record below a key. The earlier version may have
// changed the record since.
func (l *lan) written(by *etcd.Recorder, key string) {
	l.Helper()
	for _, o := range by.Operations() {
		for _, op := range slices.Concat(o.Request.Success, o.Request.Failure) {
			put := op.GetRequestPut()
			if put != nil && string(put.Key) == "/fairlead/v1/default/"+key &&
				bytes.Contains(put.Value, []byte(etcd.LaterField)) {
				return
			}
		}
	}
	l.Errorf("the later version has not written %s: %s", key, l.etcd.Members[0].Value("/fairlead/v1/default/"+key))
}

// TestTwoVersions upgrades a host of a cluster to a version whose records have a field that the others do not know.
// Hosts of both versions use the records of both, change them, and hold addresses in turn. Then the host gets the
// earlier version again.
func TestTwoVersions(t *testing.T) {
	l := newEmptyLAN(t, 1)
	for n := range 2 {
		ns := l.connected(n + 1)
		order := daemons.In(t.TempDir())
		order.Version = earlier
		d := daemons.New(t, order, child.Place{Netns: ns.File()})
		l.hosts = append(l.hosts, &host{d, ns, fmt.Sprint("host", n+1)})
	}
	one, two := l.hosts[0], l.hosts[1]
	l.init()
	two.Run("cluster", "join", strings.TrimSpace(one.Run("cluster", "token", "create")), "--node-name", "host2")
	recorder := l.etcd.Later()
	l.upgrade(two, later, recorder.Endpoints...)

	two.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	l.written(recorder, "nets/shop")
	v := &virtual{lan: l, addr: shared, client: l.connected(50)}
	s := &site{lan: l, at: shared.String(), client: v.client}
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		b := l.box(h)
		place.Answer(t, b.Do, ":8080", func(place.Request) string { return h.name })
		place.Serve(t, h.ns.Do, ":80", func(c net.Conn) { fmt.Fprint(c, h.name) })
		s.boxes = append(s.boxes, b)
	}
	l.reaches(s.boxes[0], s.boxes[1])
	l.reaches(s.boxes[1], s.boxes[0])

	two.Run("cluster", "address", "add", shared.String()+"/24", "--hold", pauseless.String())
	two.Run("service", "add", "web", shared.String()+":8080", "--cluster", "--real", "network=shop")
	l.written(recorder, "svcs/web")
	for _, h := range []*host{one, two, one} {
		two.Run("cluster", "address", "move", shared.String(), h.name)
		if name := v.answered(place.Timeout); name != h.name {
			t.Errorf("%s answers, want %s", name, h.name)
		}
		s.answered(8080, "host1", "host2")
	}
	one.Run("cluster", "drain", "host2")
	s.answered(8080, "host1")
	one.Run("cluster", "drain", "host2", "--undo")
	one.Run("service", "set", "web", "--cluster", "--check", "tcp", "--check-port", "8080")
	s.answered(8080, "host1", "host2")

	l.upgrade(two, earlier, l.endpoints...)
	s.answered(8080, "host1", "host2")
	l.reaches(s.boxes[1], s.boxes[0])
	for _, h := range l.hosts {
		if problem := h.status().Problem; problem != "" {
			t.Errorf("%s has the problem %s", h.name, problem)
		}
	}
}
