package tunnel

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// TestRoamedEndpoint reads a peer whose packets come from another port than the plan
// has.
func TestRoamedEndpoint(t *testing.T) {
	now := time.Now()
	want, roamed := netip.MustParseAddrPort("192.0.2.1:51820"), netip.MustParseAddrPort("192.0.2.1:40000")
	for name, c := range map[string]struct {
		handshake time.Time
		is        netip.AddrPort
	}{
		"during a session":  {now.Add(-time.Minute), want},
		"after a session":   {now.Add(-time.Hour), roamed},
		"without a session": {time.Time{}, roamed},
	} {
		p := wgtypes.Peer{Endpoint: net.UDPAddrFromAddrPort(roamed), LastHandshakeTime: c.handshake}
		if is := endpointOf(p, want, now); is != c.is {
			t.Errorf("%s the endpoint is read as %s, want %s", name, is, c.is)
		}
	}
	if is := endpointOf(wgtypes.Peer{}, want, now); is.IsValid() {
		t.Errorf("a peer without an endpoint has %s", is)
	}
}
