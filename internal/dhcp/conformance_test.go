package dhcp_test

import (
	"testing"

	"fairlead/internal/dhcp"
	"fairlead/internal/dhcp/dhcptest"
)

// TestConformance runs the tests of the server without a network against dnsmasq.
func TestConformance(t *testing.T) {
	dhcptest.Conform(t, func(t *testing.T, server bool) dhcptest.Network {
		c, released := dhcp.NewNetwork(t, server)
		return dhcptest.Network{Client: c, Run: dhcp.Run, Released: released}
	})
}
