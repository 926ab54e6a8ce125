package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/plan"
)

// sealed is a host whose kernel cannot be probed.
type sealed struct{ room }

func (*sealed) Kernel(context.Context) (plan.Facts, error) {
	return plan.Facts{}, errors.New("probe kernel: not permitted")
}

// TestWhatIsNotReadIsNotShown: without a daemon, no page says that there is nothing, or that nothing is wrong.
func TestWhatIsNotReadIsNotShown(t *testing.T) {
	at := served(t, newFake(t, nil), func(o *dashboard.Options) {
		o.Daemon, o.Host = admin.NewClient(filepath.Join(t.TempDir(), "none")), &sealed{}
	})
	for _, path := range pages {
		_, got := get(t, at.URL+path)
		for _, claim := range []string{"There is no", "Nothing that this page reads is wrong", "What is wrong: 0",
			"Nothing is attached", "No port is published", "Nothing happened", "can be built", "cannot be built"} {
			if strings.Contains(got, claim) && !strings.Contains(path, "explain") {
				t.Errorf("%s says %q", path, claim)
			}
		}
	}
}

// vanishing is a host on which a file vanishes while it is examined.
type vanishing struct{ room }

func (*vanishing) Host(context.Context) (doctor.Host, error) {
	return doctor.Host{}, fmt.Errorf("read /proc/7/ns/net: %w", fs.ErrNotExist)
}

// TestAddressWithoutAHolder: no node renews a lease for an address that is announced by BGP.
func TestAddressWithoutAHolder(t *testing.T) {
	all := values(time.Now())
	all["/v1/cluster"] = api.ClusterStatus{Name: "default", Node: "host1", Etcd: api.EtcdHealth{Connected: true},
		Addresses: []api.ClusterAddress{{ClusterAddressSpec: api.ClusterAddressSpec{
			Address: netip.MustParsePrefix("192.0.2.10/24"), Announce: "bgp"}, Renewed: 7 * time.Second}}}
	all["/v1/cluster/bgp"] = admin.ClusterBGPSessions{}
	_, got := get(t, served(t, newFake(t, all), nil).URL+"/cluster")
	if !strings.Contains(got, "announced by BGP") || strings.Contains(got, "7.0s ago") {
		t.Errorf("%.3000s", got)
	}
}

// TestMissingFileIsNotAMissingDaemon: the page names the file that could not be read, and says nothing about the
// daemon, which answers.
func TestMissingFileIsNotAMissingDaemon(t *testing.T) {
	at := served(t, newFake(t, values(time.Now())), func(o *dashboard.Options) { o.Host = &vanishing{} })
	_, got := get(t, at.URL+"/ports")
	if strings.Contains(got, "The daemon does not answer") || !strings.Contains(got, "read /proc/7/ns/net") {
		t.Errorf("%.900s", got)
	}
}
