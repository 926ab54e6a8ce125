package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// echo is the port at which sandboxes of TestMTU return what they receive, by TCP and UDP.
const echo = "81"

// bulk is what a transfer sends in each direction.
var bulk = bytes.Repeat([]byte("fairlead"), 1<<17)

// setMTU changes the MTU of the link between a host and the LAN.
func (l *lan) setMTU(n, mtu int) {
	l.Helper()
	port, size := fmt.Sprint("port", n+1), fmt.Sprint(mtu)
	kerneltest.Run(l, l.between, "ip", "link", "set", port, "mtu", size)
	kerneltest.Run(l, l.hosts[n].ns, "ip", "link", "set", "eth0", "mtu", size)
}

// echoing attaches a sandbox that returns what it receives.
func (l *lan) echoing(h *host) box {
	l.Helper()
	b := l.box(h)
	place.Serve(l, b.Do, ":"+echo, place.Echo)
	place.ServeUDP(l, b.Do, ":"+echo, place.EchoDatagram)
	return b
}

// haveMTU waits until the links of all sandboxes have the MTU.
func (l *lan) haveMTU(boxes []box, want int) {
	l.Helper()
	for _, b := range boxes {
		l.until(fmt.Sprintf("%s has an MTU of %d", b.addr, want), func() bool {
			return strings.Contains(kerneltest.Run(l, b.Namespace, "ip", "-o", "link", "show", "eth0"),
				fmt.Sprintf(" mtu %d ", want))
		})
	}
}

// carries fails the test unless packets of the size, and TCP segments of all sizes, pass between all
// sandboxes, and larger packets do not leave.
func (l *lan) carries(boxes []box, mtu int) {
	l.Helper()
	for _, from := range boxes {
		for _, to := range boxes {
			if from.name == to.name {
				continue
			}
			if err := from.whole(to, mtu); err != nil {
				l.Errorf("a packet of %d bytes from %s to %s: %v", mtu, from.addr, to.addr, err)
			}
			if err := from.whole(to, mtu+1); !errors.Is(err, unix.EMSGSIZE) {
				l.Errorf("a packet of %d bytes from %s to %s: %v, want %v", mtu+1, from.addr, to.addr, err, unix.EMSGSIZE)
			}
			conn := l.connect(from, to)
			l.transfer(conn)
			conn.Close()
		}
	}
}

// whole sends a packet of this size with the DF bit, and receives one of the same size. It sends another
// one if there is no answer for a second.
func (b box) whole(to box, size int) error {
	conn, err := place.Dial(b.Do, "udp", net.JoinHostPort(to.addr.String(), echo), place.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	})
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	const headers = 20 + 8 // of IPv4 and UDP
	data := make([]byte, size-headers)
	for range 5 {
		if _, err = conn.Write(data); err != nil {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err = io.ReadFull(conn, data); err == nil {
			return nil
		}
	}
	return err
}

// connect connects a sandbox to another one.
func (l *lan) connect(from, to box) net.Conn {
	l.Helper()
	conn, err := place.Dial(from.Do, "tcp", net.JoinHostPort(to.addr.String(), echo), place.Timeout)
	if err != nil {
		l.Fatal(err)
	}
	return conn
}

// transfer fails the test unless the other side of a connection returns what it receives.
func (l *lan) transfer(conn net.Conn) {
	l.Helper()
	if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		l.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(bulk)
		written <- err
	}()
	back := make([]byte, len(bulk))
	_, err := io.ReadFull(conn, back)
	if err = errors.Join(err, <-written); err != nil || !bytes.Equal(back, bulk) {
		l.Errorf("a transfer from %s to %s: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
	}
}

// TestMTU gives one host a narrower link than the others. All sandboxes get the MTU that fits it, also
// those that run when the link changes, and their connections continue.
func TestMTU(t *testing.T) {
	l := newLAN(t)
	l.setMTU(2, 1400)
	l.joined()
	l.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	var boxes []box
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		boxes = append(boxes, l.echoing(h))
	}
	l.haveMTU(boxes, 1350)
	l.carries(boxes, 1350)
	open := l.connect(boxes[0], boxes[2])
	defer open.Close()
	l.transfer(open)
	for _, mtu := range []int{1380, 1400} {
		l.setMTU(1, mtu)
		l.haveMTU(boxes, mtu-50)
		l.transfer(open)
		l.carries(boxes, mtu-50)
	}
}

// TestMTUOfNetwork creates a network with an MTU that one host's link does not carry. The host refuses the
// network and says why, until its link carries it.
func TestMTUOfNetwork(t *testing.T) {
	l := newLAN(t)
	l.joined()
	one, three := l.hosts[0], l.hosts[2]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16", "--mtu", "1450")
	var boxes []box
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		boxes = append(boxes, l.echoing(h))
	}
	l.carries(boxes, 1450)
	problem := func() bool {
		for _, n := range one.status().Nodes {
			if n.Name == three.name {
				return strings.Contains(strings.Join(n.Problems, "\n"), "network shop: mtu 1450: the link of this host "+
					"has an MTU of 1400 bytes, and the overlay takes 50 of them: raise the link's to 1500")
			}
		}
		return false
	}
	l.setMTU(2, 1400)
	l.until("the status of host1 shows the problem of host3", problem)
	l.carries(boxes[:2], 1450)
	l.setMTU(2, 1500)
	l.until("the problem has ended", func() bool { return !problem() })
	l.until("host3's sandbox is back", func() bool { return boxes[0].whole(boxes[2], 1450) == nil })
	l.carries(boxes, 1450)
}
