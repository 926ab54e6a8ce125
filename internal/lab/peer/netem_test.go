package peer

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// TestNetem: a round trip on each kind of path takes at least twice the delay, because
// netem delays what each end of the wire sends, and netem counts the packets that it
// drops. A kernel without netem is named with the missing module.
func TestNetem(t *testing.T) {
	const delay = 20 * time.Millisecond
	facts, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
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
			if least := roundTrip(t, r); least < 2*delay {
				t.Errorf("a round trip took %s, want at least %s", least, 2*delay)
			}
			if name == "host" {
				countLoss(t, r)
			}
		})
	}
}

// roundTrip connects to the workload and returns how long an answer to a byte took.
func roundTrip(t *testing.T, r *rig.Rig) time.Duration {
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
	err = r.World.DoClient(func() (err error) {
		conn, err = net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(r.Dial(result.Remote, rig.LoadPort)))
		return err
	})
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
