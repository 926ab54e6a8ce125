package systemd_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// declaredGateway returns a gateway whose router has this rule.
func declaredGateway(rule string) string {
	return `fairlead apply -f - <<'EOF'
gateway:
  entryPoints:
    web: {address: ":8080"}
  http:
    routers:
      all: {rule: ` + rule + `, service: shop}
    services:
      shop:
        loadBalancer:
          servers: [{url: "http://172.30.0.2:80"}]
EOF`
}

// stopAll stops all processes of the proxy and of the gateway (SIGSTOP).
const stopAll = `
stopped=0
for p in /proc/[0-9]*; do
	case "$(tr '\0' ' ' <$p/cmdline)" in
	(fairlead-proxy* | fairlead-gateway*) kill -STOP ${p#/proc/}; stopped=$((stopped + 1)) ;;
	esac
done
echo stopped $stopped`

// stoppedNow prints the names of the stopped processes.
const stoppedNow = `
printf stopped:
for p in $(grep -l '^State:.T' /proc/[0-9]*/status); do
	printf ' %s' "$(tr '\0' ' ' <${p%/status}/cmdline | cut -d' ' -f1)"
done
echo`

// TestStoppedProcesses stops the processes of the proxy and of the gateway, and uses the daemon under the permissions
// of the unit: its commands and its end do not wait for them. With FAIRLEAD_SILENT=1 the commands need the stopped
// processes, and the daemon removes everything: it ends them, after they have not answered for 30 seconds.
func TestStoppedProcesses(t *testing.T) {
	needed := os.Getenv("FAIRLEAD_SILENT") != ""
	var flags []string
	if needed {
		flags = []string{"--teardown"}
	}
	s := start(t, flags...)
	s.await("READY=1")
	s.says("fairlead network create web --subnet 172.30.0.0/24", "")
	s.says("fairlead attach web shop", "172.30.0.2")
	s.says("fairlead publish shop 81:80 --via proxy", "proxy")
	s.says(declaredGateway("PathPrefix(`/`)"), "")
	s.says(stopAll, "stopped 2")
	s.says("fairlead ls", "172.30.0.2")
	s.says("fairlead network create other --subnet 172.31.0.0/24", "")
	s.says("fairlead attach web peer", "172.30.0.3")
	if needed {
		out, err := s.run("fairlead publish shop 82:80 --via nat")
		if err == nil || !strings.Contains(out, "does not answer") {
			t.Errorf("a publish that needs the stopped proxy: %v: %s", err, out)
		}
		if out, err := s.run(declaredGateway("PathPrefix(`/other`)")); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a change of the gateway waits for the stopped process: %s", out)
		}
		s.says(stoppedNow, "stopped: fairlead-proxy\n")
	}
	s.stop()
	if text := s.logged(); strings.Contains(text, "kill -9") {
		t.Errorf("the daemon could not end a process:\n%s", text)
	}
}
