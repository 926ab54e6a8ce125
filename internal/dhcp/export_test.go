package dhcp

import (
	"os"
	"testing"

	"fairlead/test/process"
)

// NewNetwork returns a client on a network, on which a DHCP server runs if server is set. released
// reports whether the server has no lease.
func NewNetwork(t *testing.T, server bool) (c Config, released func() bool) {
	t.Helper()
	l := newLAN(t)
	if server {
		l.serve(dynamic)
	}
	return Config{Netns: process.Seen(l.host("web").Path()), Link: "eth0"}, func() bool {
		text, err := os.ReadFile(l.leases)
		if err != nil {
			t.Error(err)
		}
		return len(text) == 0
	}
}
