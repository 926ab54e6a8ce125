package cluster_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
	"fairlead/test/process"
)

// vip is the address of services. It is on no link.
const vip = "198.51.100.10"

// site is a cluster with network shop, on each host a sandbox that answers at port 8080 with the host's
// name and the client's address, and a client at 192.0.2.50.
type site struct {
	*lan
	boxes  []box
	client *netns.Namespace
	// at is the address that the client dials.
	at string
}

func newSite(t *testing.T, driver string) *site {
	t.Helper()
	s := &site{lan: newLAN(t), at: vip}
	s.joined()
	s.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", driver, "--subnet", "10.9.0.0/16",
		"--block-size", "28")
	for _, h := range s.hosts {
		s.until(h.name+" has the network", h.has)
		b := s.box(h)
		place.Answer(t, b.Do, ":8080", func(r place.Request) string {
			return h.name + " " + r.Client.Addr().String()
		})
		s.boxes = append(s.boxes, b)
	}
	s.client = s.connected(50)
	return s
}

// via makes a host the client's router to the services.
func (s *site) via(h *host) {
	s.Helper()
	kerneltest.Run(s, s.client, "ip", "route", "replace", vip, "via", h.address())
}

// address returns the address of the host on the LAN.
func (h *host) address() string { return "192.0.2." + strings.TrimPrefix(h.name, "host") }

// conversation is a connection of the client to a service.
type conversation struct {
	net.Conn
	answers *bufio.Reader
}

// opens connects to a port of the service's address, and returns who answered.
func (s *site) opens(port int) (c conversation, who string, err error) {
	conn, err := place.Dial(s.client.Do, "tcp", net.JoinHostPort(s.at, fmt.Sprint(port)), time.Second)
	if err != nil {
		return c, "", err
	}
	c = conversation{conn, bufio.NewReader(conn)}
	who, err = c.ask()
	if err != nil {
		conn.Close()
	}
	return c, who, err
}

// ask returns the answer to a line.
func (c conversation) ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}
	line, err := c.answers.ReadString('\n')
	return strings.TrimSpace(line), err
}

// answered waits until 30 connections in turn were answered by exactly these, e.g. "host1 192.0.2.50".
func (s *site) answered(port int, want ...string) {
	s.Helper()
	var got []string
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the answers were %q, want %q", got, want)
		}
	})
	s.until(fmt.Sprintf("port %d is answered by %v", port, want), func() bool {
		got = nil
		for range 30 {
			c, who, err := s.opens(port)
			if err != nil {
				who = err.Error()
			} else {
				c.Close()
			}
			if !slices.Contains(got, who) {
				got = append(got, who)
			}
			if err != nil {
				break
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// holds opens a connection that a real server on the host answers.
func (s *site) holds(h *host, port int) (open conversation) {
	s.Helper()
	s.until(h.name+" answers", func() bool {
		c, who, err := s.opens(port)
		if err == nil && strings.HasPrefix(who, h.name) {
			open = c
			return true
		}
		if err == nil {
			c.Close()
		}
		return false
	})
	s.Cleanup(func() { open.Close() })
	return open
}

// continues fails the test unless the host still answers on the connection.
func (s *site) continues(c conversation, h *host) {
	s.Helper()
	if who, err := c.ask(); err != nil || !strings.HasPrefix(who, h.name) {
		s.Errorf("an open connection to %s is answered by %q, %v", h.name, who, err)
	}
}

// everyone returns the answers of these hosts to the client.
func (s *site) everyone(hosts ...*host) (all []string) {
	for _, h := range hosts {
		all = append(all, h.name+" 192.0.2.50")
	}
	return all
}

// TestServices declares a service once. Each host accepts its traffic for real servers on all hosts, and
// these see the client. Then a node is drained, another is not to accept traffic, and one is cut off.
func TestServices(t *testing.T) {
	s := newSite(t, "vxlan")
	one, two, three := s.hosts[0], s.hosts[1], s.hosts[2]
	for _, refused := range [][]string{
		{"untranslated", "--real", "network=shop:80"},
		{"would not return", "--real", "network=shop:80", "--forward", "nat"},
		{"none of the cluster's", "--real", "network=front"},
		{"no such node", "--real", "network=shop", "--ingress", "host4"},
		{"needs network shop to have driver routed", "--real", "network=shop:80", "--source-nat", "masqueraded"},
	} {
		s.refused(one, refused[0],
			append([]string{"service", "add", "web", vip + ":8080", "--cluster"}, refused[1:]...)...)
	}
	two.Run("service", "add", "web", vip+":8080", "--cluster", "--real", "network=shop", "--check", "tcp",
		"--interval", "200ms", "--fall", "2", "--rise", "1")
	for _, h := range s.hosts {
		s.via(h)
		s.answered(8080, s.everyone(one, two, three)...)
	}
	s.refused(one, "belongs to the cluster", "service", "rm", "web")

	s.via(one)
	open := s.holds(three, 8080)
	s.via(two) // which has the same table of real servers
	s.continues(open, three)
	one.Run("cluster", "drain", "host3")
	s.answered(8080, s.everyone(one, two)...)
	s.continues(open, three)
	for _, h := range s.hosts {
		s.via(h)
		s.answered(8080, s.everyone(one, two)...)
	}
	one.Run("cluster", "drain", "host3", "--undo")
	s.answered(8080, s.everyone(one, two, three)...)

	one.Run("service", "set", "web", "--cluster", "--ingress", "host1,host2")
	s.via(three)
	s.until("host3 accepts no traffic", func() bool { _, _, err := s.opens(8080); return err != nil })
	s.via(two)
	s.answered(8080, s.everyone(one, two, three)...)

	kerneltest.Run(t, s.between, "ip", "link", "set", "port3", "down")
	s.answered(8080, s.everyone(one, two)...)
	kerneltest.Run(t, s.between, "ip", "link", "set", "port3", "up")
	s.answered(8080, s.everyone(one, two, three)...)

	s.withStrictPaths(three)
	three.Run("detach", process.Seen(s.boxes[2].Path()))
	s.answered(8080, s.everyone(one, two)...)
	one.Run("service", "rm", "web", "--cluster")
	for _, h := range s.hosts {
		s.until(h.name+" has no service", func() bool { return !strings.Contains(h.Run("service", "ls"), "web") })
	}
}

// withStrictPaths sets strict reverse path filtering on a host, which drops the answers of its real server. What
// `fairlead doctor` proposes brings them back.
func (s *site) withStrictPaths(h *host) {
	s.Helper()
	kerneltest.Run(s, h.ns, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
	s.until("answers of "+h.name+" are dropped", func() bool { _, _, err := s.opens(8080); return err != nil })
	found, _ := h.Try("doctor") // it fails if there are findings
	fix := regexp.MustCompile(`sysctl -w (net\.ipv4\.conf\.\S+\.rp_filter=2); ip route add default`).FindStringSubmatch(found)
	if fix == nil {
		s.Fatalf("doctor does not report the strict path:\n%s", found)
	}
	kerneltest.Run(s, h.ns, "sysctl", "-qw", fix[1])
	kerneltest.Run(s, h.ns, "ip", "route", "add", "default", "via", s.hosts[0].address())
	s.answered(8080, s.everyone(s.hosts...)...)
	if found, _ := h.Try("doctor"); strings.Contains(found, "rp_filter") {
		s.Errorf("doctor still reports rp_filter:\n%s", found)
	}
}

// TestServicesWithPorts balances over a routed network, with another port of the real servers. They see
// the node that the client has dialled.
func TestServicesWithPorts(t *testing.T) {
	s := newSite(t, "routed")
	one := s.hosts[0]
	s.refused(one, "needs network shop to be an overlay", "service", "add", "web", vip+":80", "--cluster", "--real",
		"network=shop")
	one.Run("service", "add", "web", vip+":80", "--cluster", "--real", "network=shop:8080", "--source-nat",
		"masqueraded")
	for _, h := range s.hosts {
		s.via(h)
		seen := map[string]bool{}
		s.until("all hosts answer via "+h.name, func() bool {
			c, who, err := s.opens(80)
			if err != nil {
				return false
			}
			c.Close()
			name, from, _ := strings.Cut(who, " ")
			if addr := netip.MustParseAddr(from); addr.String() == "192.0.2.50" {
				t.Errorf("%s sees the client %s", name, addr)
			}
			seen[name] = true
			return len(seen) == 3
		})
	}
}

// TestServiceBehindVirtualAddress lets the nodes hold a virtual address in turn. Real servers on the
// nodes that do not hold it answer clients directly, from this address. All nodes find them up: the answers
// to checks have the address of the node that holds it as their source.
func TestServiceBehindVirtualAddress(t *testing.T) {
	s := newSite(t, "vxlan")
	one, two, three := s.hosts[0], s.hosts[1], s.hosts[2]
	one.Run("cluster", "address", "add", "192.0.2.100/24", "--hold", pauseless.String())
	one.Run("service", "add", "web", "192.0.2.100:8080", "--cluster", "--real", "network=shop", "--check", "tcp",
		"--interval", "200ms")
	s.at = "192.0.2.100"
	s.answered(8080, s.everyone(one, two, three)...)
	for _, h := range s.hosts {
		one.Run("cluster", "address", "move", "192.0.2.100", h.name)
		s.answered(8080, s.everyone(one, two, three)...)
		for _, on := range s.hosts {
			s.until("all real servers are up on "+on.name, func() bool {
				return !strings.Contains(on.Run("service", "ls"), "down")
			})
		}
	}
}
