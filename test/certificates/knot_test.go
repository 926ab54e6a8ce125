package certificates_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

// The key of dynamic updates (RFC 8945).
const keyName, keySecret = "gateway.", "c2VjcmV0IG9mIGEgdGVzdCwgMzIgYnl0ZXMgbG9uZy4="

// zone has the addresses of names with routers. The gateway adds records for DNS-01.
const zone = `$ORIGIN test.
$TTL 60
@   SOA ns hostmaster 1 3600 600 86400 60
@   NS  ns
ns  A   127.0.0.1
api A   127.0.0.1
www A   127.0.0.1
db  A   127.0.0.1
`

const knotConfig = `server:
    rundir: %[1]s
    listen: 127.0.0.1@53
database:
    storage: %[1]s
log:
  - target: stderr
    any: warning
key:
  - id: %[2]s
    algorithm: hmac-sha256
    secret: %[3]s
acl:
  - id: gateway
    key: %[2]s
    action: update
    update-type: TXT
zone:
  - domain: test
    file: %[1]s/test.zone
    acl: gateway
`

// startKnot starts Knot DNS with the zone test at 127.0.0.1 in the namespace, until the test ends.
func startKnot(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"test.zone": zone,
		"knot.conf": fmt.Sprintf(knotConfig, dir, keyName, keySecret)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Knot announces that it serves its zones, as sd_notify(3) says.
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command("knotd", "--config", filepath.Join(dir, "knot.conf"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "notify"))
	cmd.Stderr = t.Output()
	knot, err := child.Start(context.Background(), cmd, child.Place{Netns: ns.File()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = knot.Kill() })
	go func() { // ends the wait
		<-knot.Done()
		ready.Close()
	}()
	_ = ready.SetDeadline(time.Now().Add(place.Timeout))
	message := make([]byte, 1024)
	for said := ""; !strings.Contains(said, "READY=1"); {
		n, err := ready.Read(message)
		if err != nil {
			t.Fatalf("start Knot DNS: %v", err)
		}
		said = string(message[:n])
	}
}
