package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReadIPVSFlows(t *testing.T) {
	const table = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C6336401 C5A8 C0000250 1F90 AC1E000B 0050 ESTABLISHED     897
TCP C6336401 C5A9 C0000250 1F90 AC1E000B 0050 SYN_RECV         58
TCP C6336401 0000 C0000250 1F90 AC1E000B 0050 NONE            300
UDP 20010db8:0001:0000:0000:0000:0000:0000 0035 broken
UDP 2001:0db8:0001:0000:0000:0000:0000:0001 8E1B 2001:0db8:0080:0000:0000:0000:0000:0080 0035 fd00:0030:0000:0000:0000:0000:0000:0011 0050 UDP             299
TCP C6336401 C5AA C0000250 1F90 fd00:0030:0000:0000:0000:0000:0000:0011 0050 FIN_WAIT        119 sip abc
`
	at := netip.MustParseAddrPort
	want := []conntrack.Flow{
		{Proto: model.TCP, Client: at("198.51.100.1:50600"), Host: at("192.0.2.80:8080"), Target: at("172.30.0.11:80"),
			Open: true},
		{Proto: model.TCP, Client: at("198.51.100.1:50601"), Host: at("192.0.2.80:8080"), Target: at("172.30.0.11:80")},
		{Proto: model.UDP, Client: at("[2001:db8:1::1]:36379"), Host: at("[2001:db8:80::80]:53"),
			Target: at("[fd00:30::11]:80")},
		{Proto: model.TCP, Client: at("198.51.100.1:50602"), Host: at("192.0.2.80:8080"),
			Target: at("[fd00:30::11]:80"), Open: true},
	}
	got, err := readIPVSFlows(strings.NewReader(table), func(conntrack.Flow) bool { return true })
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); err != nil || diff != "" {
		t.Errorf("%v; flows differ (-want +got):\n%s", err, diff)
	}
}
