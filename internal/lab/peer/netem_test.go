package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
	"fairlead/test/features"
)

// TestNetem: a round trip on each kind of path takes at least twice the delay, because
// netem delays what each end of the wire sends, and netem counts the packets that it
// drops. A kernel without netem is named with the missing module.
func TestNetem(t *testing.T) {
	const delay = 20 * time.Millisecond
	facts := features.Facts(t)
	conditions := &result.Netem{Delay: delay.Seconds(), Loss: 0.2, Rate: 1e9, Limit: 100}
	missing := kernel.ProbeNetem()
	paths := []string{"host", "ebpf", "macvlan", "device"}
	if missing != nil {
		paths = paths[:1] // test/vm tests all of them
	}
	for _, name := range paths {
		t.Run(name, func(t *testing.T) {
			p, _ := suite.FindPath(name)
			s, _ := suite.Find("quick")
			s.Netem, s.Workloads, s.Clients = conditions, []suite.Workload{{Name: "none", Event: "none"}}, nil
			r, err := rig.New(t.Context(), p, Maker(p), rig.Options{Suite: s, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			if r.World, err = topology.New(facts, r.Options()); err != nil {
				t.Fatal(err)
			}
			err = r.Start(t.Context())
			if missing != nil {
				if !errors.Is(err, kernel.ErrNoNetem) || !errors.Is(missing, kernel.ErrNoNetem) {
					t.Errorf("%v without netem (%v), want %v", err, missing, kernel.ErrNoNetem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if least := roundTrip(t, r, r); least < 2*delay {
				t.Errorf("a round trip took %s, want at least %s", least, 2*delay)
			}
			if name == "host" {
				countLoss(t, r)
			}
		})
	}
	if missing == nil {
		t.Run("between machines", func(t *testing.T) { betweenMachines(t, facts, conditions) })
	}
}

// betweenMachines checks the conditions of a wire whose ends are on two links that only
// a cable connects, as those of two machines.
func betweenMachines(t *testing.T, facts plan.Facts, conditions *result.Netem) {
	links := kerneltest.Netns(t)
	kerneltest.Run(t, links, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	p, _ := suite.FindPath("host")
	s, _ := suite.Find("quick")
	s.Netem, s.Workloads, s.Clients = conditions, []suite.Workload{{Name: "none", Event: "none"}}, nil
	macs := []net.HardwareAddr{{2, 0, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 1}}
	var parts []*rig.Rig
	for i, part := range []topology.Part{topology.ServerPart, topology.ClientPart} {
		link := fmt.Sprint("up", i)
		p.Name = string(part) // of the cgroups, of which each machine has its own
		kerneltest.Run(t, links, "ip", "link", "set", link, "up")
		var r *rig.Rig
		err := links.Do(func() (err error) {
			r, err = rig.New(t.Context(), p, Maker(p), rig.Options{Suite: s, Facts: facts, Part: part,
				Uplink: topology.Uplink{Link: link, MAC: macs[i], Peer: macs[1-i]}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, r)
	}
	delay := time.Duration(conditions.Delay * float64(time.Second))
	if least := roundTrip(t, parts[0], parts[1]); least < 2*delay {
		t.Errorf("a round trip took %s, want at least %s", least, 2*delay)
	}
	countLoss(t, parts[1])
}

// roundTrip connects to the workload and returns how long an answer to a byte took.
func roundTrip(t *testing.T, r, clients *rig.Rig) time.Duration {
	t.Helper()
	var server net.Listener
	err := inWorkload(r)(func() (err error) {
		server, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: rig.LoadPort})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		if conn, err := server.Accept(); err == nil {
			_, _ = io.Copy(conn, conn) // the client reports an error
			conn.Close()
		}
	}()
	var conn net.Conn
	// The kernel asks three times for the server's MAC address: one in 20 times, all of them are lost.
	for attempt := 0; attempt == 0 || attempt < 10 && errors.Is(err, unix.EHOSTUNREACH); attempt++ {
		err = clients.World.DoClient(func() (err error) {
			conn, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(r.Dial(result.Remote, rig.LoadPort)))
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(proofPatience)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// countLoss sends datagrams until netem has dropped one.
func countLoss(t *testing.T, r *rig.Rig) {
	t.Helper()
	var conn net.Conn
	err := r.World.DoClient(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(r.Dial(result.Remote, rig.LastPort)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 10_000 {
		_, _ = conn.Write([]byte("x")) // the server's host refuses it
		sent, dropped, err := r.World.NetemCounts(topology.Wire)
		if err != nil {
			t.Fatal(err)
		}
		if sent > 0 && dropped > 0 {
			return
		}
	}
	t.Error("netem has dropped no packet")
}
