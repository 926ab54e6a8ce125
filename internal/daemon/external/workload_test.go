package external_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/daemon/external"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// TestTranslated checks which sockets of a workload are where its publishes and policy
// would have put them.
func TestTranslated(t *testing.T) {
	publish := func(host string, first, container uint16) model.Publish {
		p := model.Publish{Proto: model.TCP, HostPorts: model.Port(first), Ports: model.Port(container)}
		if host != "" {
			p.HostAddr = netip.MustParseAddr(host)
		}
		return p
	}
	const loopback, deny, allow = model.UnpublishedLoopback, model.UnpublishedDeny, model.UnpublishedAllow
	for _, c := range []struct {
		at          string
		publish     model.Publish
		unpublished model.Unpublished
		translated  bool
	}{
		{"[::]:8080", publish("", 8080, 80), "", true},
		{"0.0.0.0:8080", publish("", 8080, 80), deny, true},
		{"[::]:80", publish("", 8080, 80), "", false},
		{"127.0.0.1:80", publish("", 8080, 80), "", false},
		{"[::]:80", publish("", 8080, 80), allow, false},
		// If both ports are the same, only the address can differ.
		{"[::]:80", publish("", 80, 80), "", true},
		{"192.0.2.1:80", publish("192.0.2.1", 80, 80), deny, true},
		{"0.0.0.0:80", publish("192.0.2.1", 80, 80), allow, false},
		{"[::]:80", publish("0.0.0.0", 80, 80), "", false},
		// Loopback may have a port that is published on another address.
		{"127.0.0.1:80", publish("192.0.2.1", 8080, 80), "", true},
		// The policy applies to ports that are not published.
		{"127.0.0.1:90", publish("", 8080, 80), loopback, true},
		{"[::1]:90", publish("", 8080, 80), "", true},
		{"0.0.0.0:90", publish("", 8080, 80), "", false},
		{"127.0.0.1:90", publish("", 8080, 80), deny, false},
		{"0.0.0.0:90", publish("", 8080, 80), allow, true},
	} {
		s := sockdiag.Bound{Proto: model.TCP, At: netip.MustParseAddrPort(c.at)}
		if got := external.Translated(s, c.unpublished, []model.Publish{c.publish}); got != c.translated {
			t.Errorf("%s of %s, unpublished %q: translated is %t", c.at, c.publish, c.unpublished, got)
		}
		s.Proto = model.UDP
		if got := external.Translated(s, allow, []model.Publish{c.publish}); !got {
			t.Errorf("%s/udp of %s is not translated", c.at, c.publish)
		}
	}
}
