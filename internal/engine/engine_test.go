package engine_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/proxy"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main})
	os.Exit(m.Run())
}

// world makes a topology that is closed, and found empty, after the test.
func world(t *testing.T) *topology.World {
	t.Helper()
	facts, err := kernel.Probe()
	if err != nil {
		t.Fatal(err)
	}
	w, err := topology.New(facts, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// dual is a bridge network with both families and one sandbox, web.
func dual(t *testing.T, w *topology.World) model.State {
	t.Helper()
	box, err := w.Sandbox("web")
	if err != nil {
		t.Fatal(err)
	}
	return model.State{
		Networks: []model.Network{{Name: "net", Driver: model.DriverBridge, Subnets: []model.Subnet{
			{Prefix: netip.MustParsePrefix("172.30.0.0/24")}, {Prefix: netip.MustParsePrefix("fd00:30::/64")}}}},
		Endpoints: []model.Endpoint{{Name: "web", Network: "net", Sandbox: box}},
	}
}

func onServer(t *testing.T, w *topology.World, line string) string {
	t.Helper()
	var out []byte
	if err := w.DoServer(func() (err error) {
		out, err = exec.Command("sh", "-c", line).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// echo answers every connection to a TCP port of the sandbox with a word.
func echo(t *testing.T, w *topology.World, sandbox, addr, word string) {
	t.Helper()
	err := w.DoSandbox(sandbox, func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte(word))
				c.Close()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ask dials and returns the answer, on whatever host do runs it.
func ask(do func(func() error) error, addr string) (word string, err error) {
	err = do(func() error {
		c, err := net.DialTimeout("tcp", addr, 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		word = string(buf[:n])
		return err
	})
	return word, err
}

func TestPublishReachesTheSandboxAndTearDownLeavesNothing(t *testing.T) {
	for _, via := range []model.Via{model.ViaNAT, model.ViaProxy} {
		t.Run(string(via), func(t *testing.T) {
			w := world(t)
			before := snapshot(t, w)
			s := dual(t, w)
			s.Publishes = []model.Publish{{Endpoint: "web", Via: via, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80)}}
			if _, err := w.Engine.Set(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			echo(t, w, "web", ":80", "web")
			for _, addr := range []string{"198.51.100.2:8080", "[2001:db8:1::2]:8080"} {
				if word, err := ask(w.DoClient, addr); err != nil || word != "web" {
					t.Errorf("client across the wire to %s: %q, %v", addr, word, err)
				}
			}
			for _, addr := range []string{"127.0.0.1:8080", "[::1]:8080", "198.51.100.2:8080", "[2001:db8:1::2]:8080"} {
				if word, err := ask(w.DoServer, addr); err != nil || word != "web" {
					t.Errorf("client on the host to %s: %q, %v", addr, word, err)
				}
			}
			if ops, err := w.Engine.Verify(context.Background()); err != nil || len(ops) != 0 {
				t.Errorf("strayed right after set: %v %v", ops, err)
			}
			if err := w.Engine.TearDown(context.Background()); err != nil {
				t.Fatal(err)
			}
			if after := snapshot(t, w); after != before {
				t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// snapshot writes down everything on the server host that we could leave.
func snapshot(t *testing.T, w *topology.World) string {
	t.Helper()
	// Link-local addresses come by themselves when their check ends.
	return onServer(t, w, "ip -o link | sed 's/^[0-9]*: //'; ip -o addr | sed 's/^[0-9]*: //' | grep -v fe80; ip route | sort; ip -6 route | grep -v fe80;"+
		" nft list ruleset; sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding net.bridge; ss -Hltun")
}

func TestTakenPortNamesItsOwnerAndChangesNothing(t *testing.T) {
	w := world(t)
	var l net.Listener
	if err := w.DoServer(func() (err error) { l, err = net.Listen("tcp", "0.0.0.0:8080"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := dual(t, w)
	before := snapshot(t, w)
	s.Publishes = []model.Publish{{Endpoint: "web", Via: model.ViaNAT, Proto: model.TCP, HostPorts: model.PortRange{First: 8000, Last: 8100}, Ports: model.PortRange{First: 8000, Last: 8100}}}
	_, err := w.Engine.Set(context.Background(), s)
	if err == nil || !strings.Contains(err.Error(), "engine.test") || !strings.Contains(err.Error(), "pid") {
		t.Errorf("want an error that names this process, got: %v", err)
	}
	if after := snapshot(t, w); after != before {
		t.Errorf("half done:\n%s\nbefore:\n%s", after, before)
	}
}
