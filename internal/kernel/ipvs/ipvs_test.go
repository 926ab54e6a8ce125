package ipvs

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"
)

// golden parses the bytes of a message: hexadecimal digits with any white space,
// and comments after a hash. The bytes are those of a little-endian machine.
func golden(t *testing.T, text string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Fatal("the golden bytes are those of a little-endian machine")
	}
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const golden4 = `
5400 0180                # nested IPVS_CMD_ATTR_SERVICE
0600 0100 0200 0000      # AF: AF_INET
0600 0200 0600 0000      # PROTOCOL: TCP
1400 0300 c0000250 000000000000000000000000 # ADDR: 192.0.2.80, a union of 16 bytes
0600 0400 1f90 0000      # PORT: 8080, in network byte order
0800 0600 777272 00      # SCHED_NAME: wrr
0c00 0700 01001efa ffffffff # FLAGS: persistent and bits unknown to the kernel; all are meant
0800 0800 2c010000       # TIMEOUT: 300
0800 0900 ffffff00       # NETMASK: 255.255.255.0
`

var service4 = Service{ID: ID{Protocol: unix.IPPROTO_TCP, At: netip.MustParseAddrPort("192.0.2.80:8080")},
	Scheduler: "wrr", Flags: Persistent | 0xfa1e<<16, Timeout: 300, Bits: 24}

const golden6 = `
5c00 0180                # nested IPVS_CMD_ATTR_SERVICE
0600 0100 0a00 0000      # AF: AF_INET6
0600 0200 1100 0000      # PROTOCOL: UDP
1400 0300 20010db8000000000000000000000080 # ADDR: 2001:db8::80
0600 0400 0035 0000      # PORT: 53
0700 0600 6d6800 00      # SCHED_NAME: mh
0c00 0700 18000000 ffffffff # FLAGS
0800 0800 00000000       # TIMEOUT
0800 0900 80000000       # NETMASK: the length of the prefix
0800 0b00 73697000       # PE_NAME: sip
`

var service6 = Service{ID: ID{Protocol: unix.IPPROTO_UDP, At: netip.MustParseAddrPort("[2001:db8::80]:53")},
	Scheduler: "mh", Flags: Fallback | Ports, Bits: 128, PE: "sip"}

const goldenDestination = `
6000 0280                # nested IPVS_CMD_ATTR_DEST
0600 0b00 0200 0000      # ADDR_FAMILY: AF_INET
1400 0100 0a000007 000000000000000000000000 # ADDR: 10.0.0.7
0600 0200 0050 0000      # PORT: 80
0800 0300 02000000       # FWD_METHOD: tunnel
0800 0400 0d000000       # WEIGHT: 13
0800 0500 64000000       # U_THRESH: 100
0800 0600 32000000       # L_THRESH: 50
0500 0d00 01 000000      # TUN_TYPE: GUE
0600 0e00 15b3 0000      # TUN_PORT: 5555
0600 0f00 0100 0000      # TUN_FLAGS: checksum
`

var destination = Destination{At: netip.MustParseAddrPort("10.0.0.7:80"), Forward: Tunnel, Weight: 13, Upper: 100,
	Lower:      50,
	TunnelType: 1, TunnelPort: 5555, TunnelFlags: 1}

func TestEncodeMatchesTheHeader(t *testing.T) {
	for name, c := range map[string]struct {
		part part
		want string
	}{
		"an IPv4 service": {service4.full(), golden4},
		"an IPv6 service": {service6.full(), golden6},
		"a firewall mark": {ID{Mark: 7, At: netip.MustParseAddrPort("0.0.0.0:0")}.only(),
			"1400 0180 0600 0100 0200 0000 0800 0500 07000000"},
		"a destination": {destination.full(), goldenDestination},
		"a destination's ID": {destination.only(),
			"2800 0280 0600 0b00 0200 0000 1400 0100 0a000007 000000000000000000000000 0600 0200 0050 0000"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := encode(c.part)
			if want := golden(t, c.want); err != nil || !slices.Equal(got, want) {
				t.Errorf("the message is\n%x (%v), want\n%x", got, err, want)
			}
		})
	}
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	services, err := decodeServices([]genetlink.Message{{Data: golden(t, golden4)}, {Data: golden(t, golden6)}})
	if err != nil || !slices.Equal(services, []Service{service4, service6}) {
		t.Errorf("%+v, %v; want %+v", services, err, []Service{service4, service6})
	}
	all, err := decodeDestinations([]genetlink.Message{{Data: golden(t, goldenDestination)}}, service4.ID)
	if err != nil || !slices.Equal(all, []Destination{destination}) {
		t.Errorf("%+v, %v; want %+v", all, err, destination)
	}
}

// TestDecodeCounters decodes counters, and a message of an older kernel without
// the address family.
func TestDecodeCounters(t *testing.T) {
	answer := golden(t, `
7c00 0200
1400 0100 0a000007 000000000000000000000000
0600 0200 0050 0000
0800 0300 40000003       # FWD_METHOD, with flags that are no method
0800 0400 01000000
0800 0700 02000000       # ACTIVE_CONNS
0800 0800 03000000       # INACT_CONNS
0800 0900 04000000       # PERSIST_CONNS
3400 0c00                # STATS64
0c00 0100 0100000001000000
0c00 0200 0200000000000000
0c00 0500 0500000000000000
0c00 0600 0900000000000000 # a rate
`)
	want := Destination{At: netip.MustParseAddrPort("10.0.0.7:80"), Weight: 1, Active: 2, Inactive: 3, Persistent: 4,
		Stats: Stats{Conns: 1<<32 + 1, InPackets: 2, OutBytes: 5}}
	got, err := decodeDestinations([]genetlink.Message{{Data: answer}}, service4.ID)
	if err != nil || !slices.Equal(got, []Destination{want}) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// FuzzDecode decodes arbitrary bytes. What can be decoded must be the same after
// encoding and decoding it again.
func FuzzDecode(f *testing.F) {
	for _, p := range []part{service4.full(), service6.full(), destination.full()} {
		b, err := encode(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		services, err := decodeServices([]genetlink.Message{{Data: b}})
		for _, s := range services {
			if err != nil || s.Mark != 0 || strings.Contains(s.Scheduler+s.PE, "\x00") {
				continue
			}
			s.Stats = Stats{}
			again, err := encode(s.full())
			if err != nil {
				continue // a name that is too long for an attribute
			}
			if got, err := decodeServices([]genetlink.Message{{Data: again}}); err != nil || len(got) != 1 ||
				got[0] != s {
				t.Errorf("%+v is read again as %+v, %v", s, got, err)
			}
		}
		all, err := decodeDestinations([]genetlink.Message{{Data: b}}, service4.ID)
		for _, d := range all {
			if err != nil {
				continue
			}
			d.Active, d.Inactive, d.Persistent, d.Stats = 0, 0, 0, Stats{}
			again, err := encode(d.full())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := decodeDestinations([]genetlink.Message{{Data: again}}, service4.ID); err != nil ||
				len(got) != 1 || got[0] != d {
				t.Errorf("%+v is read again as %+v, %v", d, got, err)
			}
		}
	})
}
