package dhcp

import (
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestTimes: what a server says of time is taken where it makes sense.
func TestTimes(t *testing.T) {
	seconds := func(code dhcpv4.OptionCode, n uint32) dhcpv4.Modifier {
		return dhcpv4.WithGeneric(code, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	const ever = 1<<32 - 1
	for name, s := range map[string]struct {
		lease, renew, rebind uint32
		want                 [3]time.Duration // 0 is never
	}{
		"all said":        {120, 30, 90, [3]time.Duration{30, 90, 120}},
		"nothing said":    {160, 0, 0, [3]time.Duration{80, 140, 160}},
		"all at once":     {80, 80, 80, [3]time.Duration{40, 70, 80}},
		"the wrong order": {80, 60, 50, [3]time.Duration{50 * 4 / 7, 50, 80}},
		"for ever":        {ever, 30, 90, [3]time.Duration{}},
	} {
		ack, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)), seconds(dhcpv4.OptionIPAddressLeaseTime, s.lease))
		if err != nil {
			t.Fatal(err)
		}
		if s.renew != 0 {
			seconds(dhcpv4.OptionRenewTimeValue, s.renew)(ack)
			seconds(dhcpv4.OptionRebindingTimeValue, s.rebind)(ack)
		}
		asked := time.Unix(1e9, 0)
		l, err := parse(ack, asked)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, at := range []time.Time{l.Renew, l.Rebind, l.Expires} {
			got := time.Duration(0)
			if !at.IsZero() {
				got = at.Sub(asked).Truncate(time.Second) / time.Second
			}
			if got != s.want[i] {
				t.Errorf("%s: time %d is %d s, want %d s", name, i+1, got, s.want[i])
			}
		}
	}
}

// TestSilentServer: what a server leaves out has a meaning, or none.
func TestSilentServer(t *testing.T) {
	ack, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := parse(ack, time.Unix(1e9, 0))
	if err != nil || l.Prefixes[0].String() != "192.0.2.1/24" || !l.Expires.IsZero() || l.MTU != 0 || len(l.Gateways) != 0 || l.Server.IsValid() {
		t.Errorf("an address alone is read as %+v, %v", l, err)
	}
	if ack, err = dhcpv4.New(); err != nil {
		t.Fatal(err)
	}
	if l, err := parse(ack, time.Unix(1e9, 0)); err == nil {
		t.Errorf("an answer without an address is read as %+v", l)
	}
}
