package names

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"testing"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
	"fairlead/test/process"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// endpoint returns the entry of an endpoint.
func endpoint(key string, names []string, addresses ...string) kv.Entry {
	e := record.Endpoint{Names: names}
	for _, a := range addresses {
		e.Addresses = append(e.Addresses, netip.MustParseAddr(a))
	}
	return kv.Entry{Key: record.Endpoints + key, Value: record.Encode(e), Revision: 1}
}

// update returns the update after which the cluster has these entries.
func update(entries ...kv.Entry) kv.Update {
	u := kv.Update{Snapshot: kv.NewTable(1, entries)}
	for _, e := range entries {
		u.Changed = append(u.Changed, e.Key)
	}
	return u
}

// shop is a cluster with two web servers, one of which has a second name, and another network with
// the same name.
func shop() kv.Update {
	return update(endpoint("shop/a/web-1", []string{"web", "www"}, "10.9.0.2", "fd00:9::2"),
		endpoint("shop/b/web-2", []string{"web"}, "10.9.1.2"),
		endpoint("other/a/web", []string{"web", "secret"}, "10.8.0.2"))
}

func TestLookup(t *testing.T) {
	d := NewDirectory()
	d.Update(shop())
	expect := func(network, label string, want ...string) {
		t.Helper()
		var got []string
		addresses, known := d.Lookup(network, label)
		for _, a := range addresses {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(want, got); diff != "" || known != (want != nil) {
			t.Errorf("%s in %s: known %t\n%s", label, network, known, diff)
		}
	}
	expect("shop", "web", "10.9.0.2", "fd00:9::2", "10.9.1.2")
	expect("shop", "WWW", "10.9.0.2", "fd00:9::2")
	expect("other", "web", "10.8.0.2")
	expect("shop", "secret")

	moved := update(endpoint("shop/a/web-1", []string{"web"}, "10.9.0.7"),
		endpoint("other/a/web", []string{"web"}, "10.8.0.2"))
	moved.Changed = append(moved.Changed, record.Endpoints+"shop/b/web-2") // deleted
	d.Update(moved)
	expect("shop", "web", "10.9.0.7")
	expect("shop", "www")
	expect("other", "web", "10.8.0.2")

	broken := update(kv.Entry{Key: record.Endpoints + "shop/a/web-1", Value: []byte("{")})
	if got := d.Update(broken); len(got) != 1 {
		t.Errorf("unreadable records: %v", got)
	}
	expect("shop", "web")
}

func TestAnswers(t *testing.T) {
	d := NewDirectory()
	var many []kv.Entry
	for i := range 200 {
		many = append(many, endpoint(fmt.Sprintf("shop/a/many-%03d", i), []string{"many"}, fmt.Sprintf("10.9.2.%d", i)))
	}
	d.Update(update(append(many, endpoint("shop/a/web", []string{"web"}, "10.9.0.2"))...))
	for _, c := range []struct {
		name, asked string
		kind        uint16
		rcode       int
		answers     int
	}{
		{"a name", "web.", dns.TypeA, dns.RcodeSuccess, 1},
		{"a name in another case", "WeB.", dns.TypeA, dns.RcodeSuccess, 1},
		{"a name with its network", "web.shop.", dns.TypeA, dns.RcodeSuccess, 1},
		{"no address of the family", "web.", dns.TypeAAAA, dns.RcodeSuccess, 0},
		{"another type", "web.", dns.TypeMX, dns.RcodeSuccess, 0},
		{"a name that only another server may know", "db.", dns.TypeA, dns.RcodeRefused, 0},
		{"an unknown name in the network", "db.shop.", dns.TypeA, dns.RcodeNameError, 0},
		{"a name on the Internet", "www.example.org.", dns.TypeA, dns.RcodeRefused, 0},
		{"the root", ".", dns.TypeNS, dns.RcodeRefused, 0},
	} {
		q := new(dns.Msg).SetQuestion(c.asked, c.kind)
		r := answer(d, "shop", q, true, 0)
		if r.Rcode != c.rcode || len(r.Answer) != c.answers {
			t.Errorf("%s: %v", c.name, r)
		}
		if _, err := r.Pack(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	q := new(dns.Msg).SetQuestion("many.", dns.TypeA)
	if r := answer(d, "shop", q, true, 0); !r.Truncated || r.Len() > dns.MinMsgSize {
		t.Errorf("over UDP: truncated %t, %d bytes", r.Truncated, r.Len())
	}
	first, second := answer(d, "shop", q, false, 0), answer(d, "shop", q, false, 1)
	if len(first.Answer) != maxAddresses || first.Answer[1].String() != second.Answer[0].String() {
		t.Errorf("over TCP: %d addresses, %v then %v", len(first.Answer), first.Answer[0], second.Answer[0])
	}
	q.SetEdns0(65535, false)
	if r := answer(d, "shop", q, true, 0); r.Len() > maxUDP {
		t.Errorf("with a large EDNS buffer: %d bytes", r.Len())
	}
}

func TestRates(t *testing.T) {
	r := newRates()
	now := time.Now()
	allowed := func(client string, n int, now time.Time) (all int) {
		for range n {
			if r.allow(netip.MustParseAddr(client), now) {
				all++
			}
		}
		return all
	}
	if got := allowed("10.9.0.2", 2*burst, now); got != burst {
		t.Errorf("%d of the questions that a client asked at once were answered, want %d", got, burst)
	}
	if got := allowed("10.9.0.3", burst, now); got != burst {
		t.Errorf("another client: %d, want %d", got, burst)
	}
	if got := allowed("10.9.0.2", 2*burst, now.Add(time.Second)); got != perSecond {
		t.Errorf("a second later: %d, want %d", got, perSecond)
	}
}

// TestServer asks over the network: from a sandbox, from an address outside of the network, and at
// another address of the host.
func TestServer(t *testing.T) {
	host, sandbox := kerneltest.Netns(t), kerneltest.Netns(t)
	kerneltest.Run(t, host, "ip", "link", "add", "shop", "type", "veth", "peer", "name", "eth0", "netns",
		process.Seen(sandbox.Path()))
	s := NewServer(slog.New(slog.DiscardHandler), host.Do)
	t.Cleanup(s.Close)
	s.Update(shop())
	networks := []Network{{Name: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1"),
		netip.MustParseAddr("fd00:9::1")}, Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"),
		netip.MustParsePrefix("fd00:9::/64")}}}
	if failed := s.Set(networks); len(failed) > 0 {
		t.Fatal(failed)
	}
	// The host gets the address only now, as when the network is made later.
	for _, args := range [][]string{{"addr", "add", "10.9.0.1/16", "dev", "shop"}, {"link", "set", "shop", "up"},
		{"addr", "add", "192.0.2.1/24", "dev", "shop"}, {"addr", "add", "fd00:9::1/64", "dev", "shop", "nodad"}} {
		kerneltest.Run(t, host, "ip", args...)
	}
	for _, args := range [][]string{{"addr", "add", "10.9.0.9/16", "dev", "eth0"}, {"link", "set", "eth0", "up"},
		{"addr", "add", "192.0.2.9/24", "dev", "eth0"}, {"addr", "add", "fd00:9::9/64", "dev", "eth0", "nodad"}} {
		kerneltest.Run(t, sandbox, "ip", args...)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, server := range []string{"10.9.0.1:53", "[fd00:9::1]:53"} {
			r, err := ask(sandbox, network, server, netip.Addr{}, place.Timeout)
			if err != nil || len(r.Answer) != 2 {
				t.Errorf("%s %s: %v %v", network, server, r, err)
			}
		}
	}
	if r, err := ask(sandbox, "udp", "10.9.0.1:53", netip.MustParseAddr("192.0.2.9"), silence); err == nil {
		t.Errorf("a client outside of the network got an answer: %v", r)
	}
	if r, err := ask(sandbox, "udp", "192.0.2.1:53", netip.Addr{}, silence); err == nil {
		t.Errorf("another address of the host answered: %v", r)
	}
	if failed := s.Set(nil); len(failed) > 0 {
		t.Fatal(failed)
	}
	if r, err := ask(sandbox, "udp", "10.9.0.1:53", netip.Addr{}, silence); err == nil {
		t.Errorf("the server answered after the network was removed: %v", r)
	}
}

// TestAnswersGetNoAnswer sends answers back to the server that gave them. So a program that returns
// whatever it gets, or another server, exchanges no endless datagrams with it.
func TestAnswersGetNoAnswer(t *testing.T) {
	host := kerneltest.Netns(t)
	kerneltest.Run(t, host, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, host, "ip", "addr", "add", "10.9.0.1/16", "dev", "lo")
	s := NewServer(slog.New(slog.DiscardHandler), host.Do)
	t.Cleanup(s.Close)
	s.Update(shop())
	if failed := s.Set([]Network{{Name: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}); len(failed) > 0 {
		t.Fatal(failed)
	}
	if err := host.Do(func() error {
		conn, err := dns.DialTimeout("udp", "10.9.0.1:53", place.Timeout)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(place.Timeout))
		var last *dns.Msg
		for range 20 {
			if last != nil {
				if err := conn.WriteMsg(last); err != nil {
					return err
				}
			}
			q := new(dns.Msg).SetQuestion("web.", dns.TypeA)
			if err := conn.WriteMsg(q); err != nil {
				return err
			}
			if last, err = conn.ReadMsg(); err != nil {
				return err
			}
			if last.Id != q.Id {
				t.Error("an answer got an answer")
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPortInUse reports a network whose port another program has, and serves it afterwards.
func TestPortInUse(t *testing.T) {
	host := kerneltest.Netns(t)
	kerneltest.Run(t, host, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, host, "ip", "addr", "add", "10.9.0.1/16", "dev", "lo")
	other, err := place.ListenPacket(host.Do, "10.9.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(slog.New(slog.DiscardHandler), host.Do)
	t.Cleanup(s.Close)
	networks := []Network{{Name: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}
	if failed := s.Set(networks); failed["shop"] == nil {
		t.Error("no problem although another program has the port")
	}
	other.Close()
	if failed := s.Set(networks); len(failed) > 0 {
		t.Error(failed)
	}
	s.Update(shop())
	if r, err := ask(host, "udp", "10.9.0.1:53", netip.Addr{}, place.Timeout); err != nil || len(r.Answer) != 2 {
		t.Errorf("%v %v", r, err)
	}
}

// TestSetWhileAsked stops and starts a network while sandboxes ask there.
func TestSetWhileAsked(t *testing.T) {
	host := kerneltest.Netns(t)
	kerneltest.Run(t, host, "ip", "link", "set", "lo", "up")
	kerneltest.Run(t, host, "ip", "addr", "add", "10.9.0.1/16", "dev", "lo")
	s := NewServer(slog.New(slog.DiscardHandler), host.Do)
	s.Update(shop())
	networks := []Network{{Name: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}
	var askers sync.WaitGroup
	ended := make(chan struct{})
	for range 4 {
		askers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					// It fails while the server does not listen.
					_, _ = ask(host, "udp", "10.9.0.1:53", netip.Addr{}, silence)
				}
			}
		})
	}
	set := make(chan struct{})
	go func() {
		defer close(set)
		for range 50 {
			s.Set(networks)
			s.Update(shop())
			s.Set(nil)
		}
	}()
	select {
	case <-set:
	case <-time.After(place.Timeout):
		t.Error("Set waits for a question that waits for Set")
	}
	close(ended)
	askers.Wait()
}

// silence is how long a test waits for an answer that must not come.
const silence = 2 * time.Second

// ask asks a server for the IPv4 addresses of web, from an address of the namespace.
func ask(from *netns.Namespace, network, server string, source netip.Addr, limit time.Duration) (r *dns.Msg,
	err error) {
	dialer := net.Dialer{Timeout: limit}
	if source.IsValid() {
		dialer.LocalAddr = &net.UDPAddr{IP: source.AsSlice()}
	}
	client := dns.Client{Net: network, Dialer: &dialer, Timeout: limit}
	err = from.Do(func() error {
		conn, err := client.Dial(server)
		if err != nil {
			return err
		}
		defer conn.Close()
		r, _, err = client.ExchangeWithConn(new(dns.Msg).SetQuestion("web.", dns.TypeA), conn)
		return err
	})
	return r, err
}
