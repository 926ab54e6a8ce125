package dhcptest_test

import (
	"testing"

	"fairlead/internal/dhcp"
	"fairlead/internal/dhcp/dhcptest"
)

func TestConformance(t *testing.T) {
	dhcptest.Conform(t, func(_ *testing.T, server bool) dhcptest.Network {
		s := dhcptest.NewServer()
		s.Silent = !server
		return dhcptest.Network{Client: dhcp.Config{Hostname: "web"}, Run: s.Run,
			Released: func() bool { return len(s.Released()) > 0 }}
	})
}
