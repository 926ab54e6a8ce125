package cluster_test

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/process"
)

// limited is the environment variable that makes the tests of sandboxes which come or move fail if they are
// reached later than reachableLimit and movedLimit. CI does not set it: its machine has other load.
const (
	limited        = "FAIRLEAD_LIMITS"
	reachableLimit = 50 * time.Millisecond
	movedLimit     = 200 * time.Millisecond
)

// within fails the test if a time is over a limit, if the environment variable asks for that.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	if os.Getenv(limited) != "" && took > limit {
		t.Errorf("%s: %v, want at most %v", what, took, limit)
	}
}

// TestNewSandboxesAreReachable attaches sandboxes on one host, and connects to each from another host. It logs
// how long it takes until an attached sandbox answers, and limits it if FAIRLEAD_LIMITS is set. When attach returns,
// the bridge forwards to the sandbox.
func TestNewSandboxesAreReachable(t *testing.T) {
	l := newLAN(t)
	l.joined()
	one, two := l.hosts[0], l.hosts[1]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	l.until("host1 has the network", one.has)
	l.until("host2 has the network", two.has)
	from := l.box(one)
	var after, whole []time.Duration
	for range 10 {
		ns := kerneltest.Netns(t)
		path := process.Seen(ns.Path())
		begun := time.Now()
		_, err := admin.Attach.Do(t.Context(), two.Client, api.AttachRequest{Endpoint: model.Endpoint{Network: "shop",
			Sandbox: path}})
		if err != nil {
			t.Fatal(err)
		}
		returned := time.Now()
		to := net.JoinHostPort(l.attached(two, path).Endpoint.Addresses[0].String(), "80")
		l.until("the sandbox answers", func() bool {
			_, err := place.Dial(from.Do, "tcp", to, time.Second)
			return errors.Is(err, syscall.ECONNREFUSED) // nothing listens: the sandbox itself has answered
		})
		after, whole = append(after, time.Since(returned)), append(whole, time.Since(begun))
	}
	t.Logf("until a sandbox answered another host: at most %v after attach returned, %v after its begin",
		slices.Max(after), slices.Max(whole))
	within(t, "until a sandbox answered after attach began", slices.Max(whole), reachableLimit)
	for range 5 {
		if err := attach(t.Context(), two, kerneltest.Netns(t)); err != nil {
			t.Fatal(err)
		}
		if ports := kerneltest.Run(t, two.ns, "bridge", "link", "show"); strings.Contains(ports, "state disabled") {
			t.Errorf("a port of the bridge does not forward after attach has returned:\n%s", ports)
		}
	}
}
