package engine_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// TestInternalNetworkReachesNoPublishedPort checks that an internal network
// reaches published ports of other networks at no address of the host, with
// each publish mode.
func TestInternalNetworkReachesNoPublishedPort(t *testing.T) {
	for _, d := range []model.Driver{model.DriverBridge, model.DriverRouted} {
		for _, via := range []model.Via{model.ViaProxy, model.ViaNAT, model.ViaEBPF} {
			t.Run(fmt.Sprintf("%s %s", d, via), func(t *testing.T) {
				t.Parallel()
				w := world(t)
				s := dual(t, w, d, "shut", "web", "open")
				s.Networks[0].Internal = true
				s.Networks = append(s.Networks, model.Network{Name: "open", Driver: d, Subnets: []model.Subnet{
					{Prefix: netip.MustParsePrefix("172.31.0.0/24")}, {Prefix: netip.MustParsePrefix("fd00:31::/64")}}})
				s.Endpoints[1].Network, s.Endpoints[2].Network = "open", "open"
				for _, proto := range protos {
					publish(&s, "web", via, proto, 8080, 80)
				}
				mustSet(t, w, s)
				undrifted(t, w)
				serve(t, in(w, "web"), "web", ":80")
				sh(t, in(w, "shut"),
					"ip route replace default via 172.30.0.1; ip -6 route replace default via fd00:30::1")
				var asked sync.WaitGroup
				for _, proto := range protos {
					for _, to := range append(both("172.31.0.1", "fd00:31::1", 8080), server(8080)...) {
						hears(t, in(w, "open"), proto, to, "web")
						asked.Go(func() { unanswered(t, in(w, "shut"), proto, to) })
					}
					for _, to := range both("172.30.0.1", "fd00:30::1", 8080) {
						asked.Go(func() { unanswered(t, in(w, "shut"), proto, to) })
					}
				}
				asked.Wait()
			})
		}
	}
}

// unanswered fails the test if any program answers at the address.
func unanswered(t testing.TB, from place.Place, proto model.Proto, to string) {
	t.Helper()
	conn, err := place.Dial(from, string(proto), to, silence)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return
	}
	if n, err := conn.Read(make([]byte, 64)); err == nil {
		t.Errorf("an internal sandbox gets an answer from %s %s: %d bytes", proto, to, n)
	}
}
