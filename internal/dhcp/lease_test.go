package dhcp

import (
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestTimes checks that the server's times are used if they are plausible.
func TestTimes(t *testing.T) {
	seconds := func(code dhcpv4.OptionCode, n uint32) dhcpv4.Modifier {
		return dhcpv4.WithGeneric(code, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	const ever = 1<<32 - 1
	for name, s := range map[string]struct {
		lease, renew, rebind uint32
		want                 [3]time.Duration // 0 is never
	}{
		"both times sent": {120, 30, 90, [3]time.Duration{30, 90, 120}},
		"no times sent":   {160, 0, 0, [3]time.Duration{80, 140, 160}},
		"equal times":     {80, 80, 80, [3]time.Duration{40, 70, 80}},
		"wrong order":     {80, 60, 56, [3]time.Duration{32, 56, 80}},
		"infinite":        {ever, 30, 90, [3]time.Duration{}},
		"a century":       {ever - 7, 0, 0, [3]time.Duration{(ever - 7) / 2, (ever - 7) / 8 * 7, ever - 7}},
	} {
		ack, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)),
			seconds(dhcpv4.OptionIPAddressLeaseTime, s.lease))
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

// TestSilentServer checks the defaults of options that a server omits.
func TestSilentServer(t *testing.T) {
	ack, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := parse(ack, time.Unix(1e9, 0))
	if err != nil || l.Prefixes[0].String() != "192.0.2.1/24" || !l.Expires.IsZero() || l.MTU != 0 ||
		len(l.Gateways) != 0 || l.Server.IsValid() {
		t.Errorf("an answer with only an address is parsed as %+v, %v", l, err)
	}
}

// TestBadAnswers checks that answers that would harm the sandbox are refused.
func TestBadAnswers(t *testing.T) {
	at := func(a ...byte) dhcpv4.Modifier { return dhcpv4.WithYourIP(net.IP(a)) }
	mask := func(m ...byte) dhcpv4.Modifier { return dhcpv4.WithNetmask(net.IPMask(m)) }
	for name, options := range map[string][]dhcpv4.Modifier{
		"no address":       {mask(255, 255, 255, 0)},
		"loopback":         {at(127, 0, 0, 1), mask(255, 0, 0, 0)},
		"multicast":        {at(224, 0, 0, 1), mask(255, 255, 255, 0)},
		"prefix length 0":  {at(192, 0, 2, 1), mask(0, 0, 0, 0)},
		"a mask with gaps": {at(192, 0, 2, 1), mask(255, 0, 255, 0)},
	} {
		ack, err := dhcpv4.New(options...)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := parse(ack, time.Unix(1e9, 0)); err == nil {
			t.Errorf("%s: parsed as %+v, want an error", name, l)
		}
	}
}

// FuzzParse checks that no datagram makes the parser panic or return an invalid
// lease.
func FuzzParse(f *testing.F) {
	for _, options := range [][]dhcpv4.Modifier{
		nil,
		{dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)), dhcpv4.WithLeaseTime(120),
			dhcpv4.WithRouter(net.IPv4(192, 0, 2, 254))},
		{dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 1)),
			dhcpv4.WithGeneric(dhcpv4.OptionClasslessStaticRoute, []byte{0, 192, 0, 2, 254, 33})},
	} {
		ack, err := dhcpv4.New(options...)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ack.ToBytes())
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		ack, err := dhcpv4.FromBytes(datagram)
		if err != nil {
			return
		}
		l, err := parse(ack, time.Unix(1e9, 0))
		if err != nil {
			return
		}
		if p := l.Prefixes[0]; !p.IsValid() || p.Bits() == 0 {
			t.Errorf("invalid prefix %v", p)
		}
		for _, r := range l.Routes {
			if !r.To.IsValid() {
				t.Errorf("invalid route to %v", r.To)
			}
		}
		if at, how := l.next(time.Time{}); how != expire && (at.Before(time.Unix(1e9, 0)) || !at.Before(l.Expires)) {
			t.Errorf("the time of renewal is %v, of %+v", at, l)
		}
	})
}
