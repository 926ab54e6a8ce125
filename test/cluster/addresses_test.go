package cluster_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// pauseless is a hold time that is longer than a busy machine pauses a holder.
const pauseless = 5 * time.Second

// virtual is a virtual address of a cluster, and a client on the same link. Each host answers
// a connection to port 80 with its name.
type virtual struct {
	*lan
	prefix netip.Prefix
	addr   netip.Addr
	client *netns.Namespace
}

func newVirtual(t *testing.T, address string, hold time.Duration) *virtual {
	t.Helper()
	v := newLANFor(t, address)
	v.add(hold)
	return v
}

// newLANFor returns a LAN whose cluster does not have the virtual address yet.
func newLANFor(t *testing.T, address string) *virtual {
	t.Helper()
	v := &virtual{lan: newLAN(t), prefix: netip.MustParsePrefix(address)}
	v.addr = v.prefix.Addr()
	v.client = v.connected(77)
	kerneltest.Run(t, v.client, "ip", "address", "add", "2001:db8::77/64", "dev", "eth0", "nodad")
	for n, h := range v.hosts {
		kerneltest.Run(t, h.ns, "ip", "address", "add", fmt.Sprintf("2001:db8::%d/64", n+1), "dev", "eth0", "nodad")
	}
	v.joined()
	for _, h := range v.hosts {
		place.Serve(t, h.ns.Do, ":80", func(c net.Conn) { fmt.Fprint(c, h.name) })
	}
	return v
}

// add adds the address to the cluster.
func (v *virtual) add(hold time.Duration) {
	v.Helper()
	v.change(func(r *record.Address) { r.Prefix, r.Hold = v.prefix, hold })
}

// restartable restarts the daemons, and returns a hold time, at least the given one, that is many times as long as a
// restart takes while the machine is as busy as it is: a holder whose daemon is away for its lease loses the address.
func (v *virtual) restartable(least time.Duration) time.Duration {
	v.Helper()
	hold := least
	for _, h := range v.hosts {
		began := time.Now()
		h.Kill()
		h.Start()
		hold = max(hold, 6*time.Since(began))
	}
	return min(hold, record.MaxHold)
}

// change changes the record of the address, as an administrator does.
func (v *virtual) change(do func(*record.Address)) {
	v.Helper()
	v.etcd.Members[0].Change(v.key(), func(value []byte) []byte {
		r, _ := record.Decode[record.Address](kv.Entry{Value: value}) // at first it does not exist
		do(&r)
		return record.Encode(r)
	})
}

func (v *virtual) key() string { return "/fairlead/v1/default/addrs/" + v.addr.String() }

// answered returns the name of the host that answers the client; empty if none does in time.
func (v *virtual) answered(limit time.Duration) string {
	conn, err := place.Dial(v.client.Do, "tcp", netip.AddrPortFrom(v.addr, 80).String(), limit)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	name, _ := io.ReadAll(conn) // it is empty if the connection ends
	return string(name)
}

// held waits until a host other than these answers, and returns it.
func (v *virtual) held(not ...*host) (holder *host) {
	v.Helper()
	v.until("a host answers", func() bool {
		name := v.answered(200 * time.Millisecond)
		for _, h := range v.hosts {
			if h.name == name {
				holder = h
			}
		}
		for _, n := range not {
			if n == holder {
				holder = nil
			}
		}
		return holder != nil
	})
	return holder
}

// accepts reports whether a host answers packets that the client sends to its hardware address.
func (v *virtual) accepts(h *host) bool {
	v.Helper()
	var link *net.Interface
	err := h.ns.Do(func() (err error) {
		link, err = net.InterfaceByName("eth0")
		return err
	})
	if err != nil {
		v.Fatal(err)
	}
	kerneltest.Run(v, v.client, "ip", "neigh", "replace", v.addr.String(), "lladdr", link.HardwareAddr.String(),
		"dev", "eth0", "nud", "permanent")
	defer kerneltest.Run(v, v.client, "ip", "neigh", "del", v.addr.String(), "dev", "eth0")
	return v.answered(300*time.Millisecond) == h.name
}

// left returns what a host has of the address.
func (v *virtual) left(h *host) string {
	return kerneltest.Run(v, h.ns, "ip", "-o", "address", "show", "to", v.addr.String())
}

// TestAddress lets a host hold a virtual address. When its daemon is killed, another host takes
// over. Nothing is left when the hosts have left the cluster.
func TestAddress(t *testing.T) {
	v := newVirtual(t, "192.0.2.10/24", time.Second)
	one := v.held()
	one.Kill()
	two := v.held(one)
	if v.accepts(one) {
		t.Errorf("%s accepts packets for the address, which %s has taken", one.name, two.name)
	}
	one.Start()
	kerneltest.Run(t, v.between, "ip", "link", "set", "port"+strings.TrimPrefix(two.name, "host"), "down")
	three := v.held(two)
	v.until(two.name+", which has no carrier, gives the address up", func() bool { return v.left(two) == "" })
	three.Run("cluster", "leave")
	v.held(three)
	if left := v.left(three); left != "" {
		t.Errorf("%s has left the cluster, and keeps the address:\n%s", three.name, left)
	}
	if pins := three.fencePins(); len(pins) > 0 {
		t.Errorf("%s has left the cluster, and keeps %v", three.name, pins)
	}
	v.change(func(r *record.Address) { r.Removed = true })
	v.until("nothing is left on "+one.name, func() bool { return v.left(one) == "" && len(one.fencePins()) == 0 })
}

// conflicts lets the client answer for the address, too. The holder shows the conflict, and keeps the address.
func (v *virtual) conflicts(holder *host) {
	v.Helper()
	v.pretend()
	v.until("the conflict is shown", func() bool {
		return strings.Contains(holder.Run("events"), "address conflict") &&
			strings.Contains(strings.Join(holder.node(holder.name).Problems, "\n"), "answers for it, too")
	})
	if v.held() != holder {
		v.Error("a conflict has moved the address")
	}
}

// pretend lets the client ask for the hardware address of another host in the name of the address.
func (v *virtual) pretend() {
	v.Helper()
	kerneltest.Run(v, v.client, "ip", "address", "add", v.addr.String()+"/32", "dev", "eth0")
	defer kerneltest.Run(v, v.client, "ip", "address", "del", v.addr.String()+"/32", "dev", "eth0")
	kerneltest.Run(v, v.client, "ip", "neigh", "flush", "all")
	err := v.client.Do(func() error {
		other := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 9}
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: v.addr.AsSlice()}, other)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		return err
	})
	if err != nil {
		v.Fatal(err)
	}
}

// fencePins returns the pins of the host's fence.
func (h *host) fencePins() []string {
	pins, _ := filepath.Glob(filepath.Join(h.Order.Run, "bpf", "pins", "*-fence")) // the pattern is valid
	return pins
}

// TestAddressAcrossRestart kills the daemon of the holder and starts it again. A connection loses no
// segment meanwhile, and no other host has taken the address.
func TestAddressAcrossRestart(t *testing.T) {
	v := newLANFor(t, "192.0.2.10/24")
	v.add(v.restartable(5 * time.Second))
	holder := v.held()
	place.Serve(t, holder.ns.Do, ":81", place.Echo)
	conn, err := place.Dial(v.client.Do, "tcp", netip.AddrPortFrom(v.addr, 81).String(), place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := v.record()
	holder.Kill()
	v.echoes(conn)
	holder.Start()
	v.until("the next process renews", func() bool {
		v.echoes(conn)
		return v.record().Sequence > before.Sequence+1
	})
	if now := v.record(); now.Epoch != before.Epoch || repeatedOf(conn.(*net.TCPConn)) > 0 {
		t.Errorf("epoch %d, before %d, %d repeated segments", now.Epoch, before.Epoch, repeatedOf(conn.(*net.TCPConn)))
	}
}

// echoes fails the test unless the other side of a connection answers.
func (v *virtual) echoes(conn net.Conn) {
	v.Helper()
	_, err := conn.Write([]byte("x"))
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(place.Timeout))
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if err != nil {
		v.Fatal(err)
	}
}

// record returns the record of the address.
func (v *virtual) record() record.Address {
	v.Helper()
	now, err := record.Decode[record.Address](kv.Entry{Value: v.etcd.Members[0].Value(v.key())})
	if err != nil {
		v.Fatal(err)
	}
	return now
}

// TestAddressWithoutEtcd ends etcd and restarts two daemons, one after the other: each time the nodes promise the holder
// another lease, so it keeps the address for longer than the hold time.
func TestAddressWithoutEtcd(t *testing.T) {
	v := newLANFor(t, "192.0.2.10/24")
	hold := v.restartable(4 * time.Second)
	v.add(hold)
	v.held()
	for _, h := range v.hosts { // afterwards each has a snapshot on the disk
		h.Stop()
		h.Start()
	}
	holder := v.held()
	other := v.hosts[0]
	if other == holder {
		other = v.hosts[1]
	}
	v.etcd.Members[0].Kill()
	ended := time.Now().Add(hold) // of the last lease that etcd can have granted
	for _, h := range []*host{holder, other} {
		h.Kill()
		h.Start()
		v.promised(holder, hold, time.Now())
	}
	v.promised(holder, hold, ended)
	other.Kill()
	v.until("no host answers", func() bool { return v.answered(200*time.Millisecond) == "" })
	v.etcd.Members[0].Start()
	v.held()
}

// promised waits until the nodes have promised the holder a lease that it has asked for after a time. Meanwhile the
// client is answered by the holder only.
func (v *virtual) promised(holder *host, hold time.Duration, after time.Time) {
	v.Helper()
	v.until("the nodes promise "+holder.name+" another lease", func() bool {
		// Without etcd, no host gets the address back whose lease has ended.
		if name := v.answered(place.Timeout); name != holder.name {
			v.Fatalf("after restarts without etcd the address is answered by %q, before by %s", name, holder.name)
		}
		read := time.Now()
		all := holder.status().Addresses
		return len(all) == 1 && all[0].Answers && read.Add(all[0].Lease).After(after.Add(hold))
	})
}

// repeatedOf returns how many segments a connection has sent again; 255 if that is not known.
func repeatedOf(conn syscall.Conn) (repeated uint32) {
	repeated = 255
	raw, err := conn.SyscallConn()
	if err != nil {
		return repeated
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			repeated = info.Total_retrans
		}
	})
	return repeated
}

// nodeID returns the id of a host's node.
func (l *lan) nodeID(h *host) string {
	l.Helper()
	id := h.node(h.name).ID
	if id == "" {
		l.Fatalf("%s is no node", h.name)
	}
	return id
}
