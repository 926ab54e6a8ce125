package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// TestFlowtable sends through established connections of a network with flowtable, in both
// directions, and counts what passes the host's FORWARD rules. A new rule ends the short cut,
// and so do the end of a publish and the start of another daemon. A kernel without
// flowtables refuses the network.
func TestFlowtable(t *testing.T) {
	for _, driver := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		t.Run(string(driver), func(t *testing.T) {
			w := newLANWorld(t)
			w.start()
			n := lan
			n.Driver, n.Flowtable = driver, true
			if missing := w.facts.Missing[plan.FeatureFlowtable]; missing != "" {
				_, err := w.CreateNetwork(n, false)
				if err == nil || !strings.Contains(err.Error(), missing) {
					t.Errorf("the network is created on a kernel without flowtables: %v", err)
				}
				return
			}
			before := w.snapshot()
			b := w.flowtable(n)
			flows := w.established(b)
			w.bypass(flows)
			w.sh("nft insert rule inet counting forward drop")
			silent(t, flows)
			w.sh("nft flush chain inet counting forward; nft add rule inet counting forward counter")
			w.bypass(flows)
			// Rules that change while no daemon runs count when the next one starts.
			w.stop()
			w.sh("nft insert rule inet counting forward drop")
			w.start()
			silent(t, flows)
			w.sh("nft flush chain inet counting forward; nft add rule inet counting forward counter")
			w.bypass(flows)
			w.undone(b, flows[:4])
			w.bypass(flows[4:])
			w.sh("nft delete table inet counting")
			b.kill()
			w.nothingLeft(before)
		})
	}
}

// flowtable attaches a sandbox that echoes to the network, publishes its port, and counts
// what the host forwards.
func (w *lanWorld) flowtable(n model.Network) watchedSandbox {
	w.Helper()
	w.network(n)
	b := w.watchedSandbox()
	w.attach(api.AttachRequest{Endpoint: model.Endpoint{Name: "web", Network: n.Name, Sandbox: b.pid}})
	w.publish(b, bothProtocols())
	for at, in := range map[string]place.Place{":80": b.in, ":9000": w.client.Do} {
		place.Serve(w, in, at, place.Echo)
		place.ServeUDP(w, in, at, place.EchoDatagram)
	}
	shell.Run(w, w.client.Do, "ip route add 172.30.0.0/16 via 198.51.100.2; ip route add fd00:30::/64 via 2001:db8::2")
	w.sh("nft add table inet counting; nft add chain inet counting forward '{ type filter hook forward priority 0; }'; " +
		"nft add rule inet counting forward counter")
	return b
}

func bothProtocols() []model.Publish {
	all := append(published(model.ViaNAT, 8080), published(model.ViaNAT, 8080)...)
	all[1].Proto = model.UDP
	return all
}

// established opens connections to the published port, and then from the sandbox to the
// client, over each protocol and family.
func (w *lanWorld) established(b watchedSandbox) (all []net.Conn) {
	w.Helper()
	open := func(from place.Place, addrs ...string) {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range addrs {
				c, err := place.Dial(from, network, addr, place.Timeout)
				if err != nil {
					w.Fatal(err)
				}
				w.Cleanup(func() { c.Close() })
				all = append(all, c)
			}
		}
	}
	open(w.client.Do, hosts4+":8080", "["+hosts6+"]:8080")
	open(b.in, "198.51.100.1:9000", "[2001:db8::1]:9000")
	return all
}

// pause is between the packets of clients that send all the time. Without it, an emulator would execute nothing else.
const pause = 5 * time.Millisecond

// converse sends through the connection and reads the echo.
func converse(c net.Conn, wait time.Duration) error {
	sent := fmt.Appendf(nil, "%d", time.Now().UnixNano())
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := c.Write(sent); err != nil {
		return err
	}
	var got []byte
	for buf := make([]byte, 256); !bytes.HasSuffix(got, sent); {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		got = append(got, buf[:n]...)
	}
	return nil
}

// bypass converses until the host's FORWARD rules see none of it.
func (w *lanWorld) bypass(flows []net.Conn) {
	w.Helper()
	for _, c := range flows {
		if err := converse(c, place.Timeout); err != nil {
			w.Fatalf("%s %s: %v", c.RemoteAddr().Network(), c.RemoteAddr(), err)
		}
	}
	forwarded := ""
	for end := time.Now().Add(place.Timeout); time.Now().Before(end); {
		was := w.sh("nft list chain inet counting forward")
		for range 5 {
			for _, c := range flows {
				if err := converse(c, place.Timeout); err != nil {
					w.Fatalf("%s %s: %v", c.RemoteAddr().Network(), c.RemoteAddr(), err)
				}
			}
		}
		if forwarded = w.sh("nft list chain inet counting forward"); forwarded == was {
			return
		}
	}
	w.Fatalf("FORWARD rules see established connections:\n%s", forwarded)
}

// silent waits until nothing is answered any more, and checks that this stays so.
func silent(t testing.TB, flows []net.Conn) {
	t.Helper()
	for _, c := range flows {
		err := error(nil)
		for end := time.Now().Add(place.Timeout); err == nil && time.Now().Before(end); time.Sleep(pause) {
			err = converse(c, 200*time.Millisecond)
		}
		for range 3 {
			if err == nil || converse(c, 200*time.Millisecond) == nil {
				t.Fatalf("%s %s: answers although a rule drops it", c.RemoteAddr().Network(), c.RemoteAddr())
			}
		}
		if !os.IsTimeout(err) {
			t.Fatalf("%s %s: %v", c.RemoteAddr().Network(), c.RemoteAddr(), err)
		}
	}
}

// undone ends the publish, and with it the connections to it, while a client sends all the time.
func (w *lanWorld) undone(b watchedSandbox, flows []net.Conn) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var begun, busy sync.WaitGroup
	for _, c := range flows {
		if c.RemoteAddr().Network() == "udp" {
			_ = c.SetDeadline(time.Time{})
			begun.Add(1)
			busy.Go(func() {
				for sent := 0; ctx.Err() == nil; sent++ {
					_, _ = c.Write([]byte("busy")) // refused once the publish has ended
					if sent == 100 {
						begun.Done()
					}
					time.Sleep(pause)
				}
			})
		}
	}
	begun.Wait()
	req := api.PublishRequest{Target: b.pid, Publishes: bothProtocols()}
	_, err := w.Unpublish(context.Background(), req)
	cancel()
	busy.Wait()
	if err != nil {
		w.Fatal(err)
	}
	for _, c := range flows {
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); { // the echoes of before
			if c.SetReadDeadline(end) != nil {
				break
			}
			_, _ = c.Read(make([]byte, 256))
		}
		if err := converse(c, 300*time.Millisecond); err == nil {
			w.Errorf("%s %s: answers although it is not published any more", c.RemoteAddr().Network(), c.RemoteAddr())
		}
	}
}
