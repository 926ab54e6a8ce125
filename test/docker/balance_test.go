package docker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
)

// web maps the names of the containers behind the virtual address to their addresses.
var web = map[string]string{"web-a": "172.30.0.11", "web-b": "172.30.0.12", "web-c": "172.30.0.13"}

// vip and vip6 are virtual addresses on the LAN.
const (
	vip  = "192.0.2.80"
	vip6 = "[2001:db8:9::80]"
)

// balances uses containers as the real servers of a service. Clients must not notice planned
// changes of the servers.
func (h *host) balances() {
	before := h.inventory()
	h.docker("network", "create", "-d", "fairlead", "--ipv6", "--subnet", "172.30.0.0/24", "--subnet", "fd00:30::/64",
		"net")
	h.sh("mkdir /run/ends; mkfifo /run/ends/late")
	for name, at := range web {
		h.sh("mkfifo /run/ends/" + name)
		h.runs(name, at, "name:"+name, "until:/ends/"+name)
	}
	h.fairlead("service", "add", "site", vip+":80", "--interface", "up0", "--real", "label=app=web:80", "--check",
		"tcp", "--interval", "100ms", "--timeout", "30s", "--scheduler", "rr")
	h.fairlead("service", "add", "site6", vip6+":80", "--interface", "up0", "--real", "label=app=web:80", "--scheduler",
		"rr")
	for name := range web {
		h.awaitReal("site", web[name], api.RealUp, "")
	}
	h.answer("web-a", "web-b", "web-c")
	h.stopped()
	h.paused()
	h.moved()
	h.unhealthy()
	h.survivesKills()
	h.fairlead("service", "rm", "site")
	h.fairlead("service", "rm", "site6")
	h.docker("rm", "-f", "web-a", "web-b", "web-c")
	h.docker("network", "rm", "net")
	h.sh("rm -r /run/ends")
	h.unchanged(before)
	h.empty()
}

// runs starts a real server of the web service.
func (h *host) runs(name, at string, words ...string) {
	h.Helper()
	h.docker(append([]string{"run", "-d", "--name", name, "--label", "app=web", "--network", "net", "--ip", at, "-v",
		"/run/ends:/ends", "program", "serve", "tcp:80"}, words...)...)
}

// ends makes Docker stop or restart a server of the web service. The server runs until its drain
// has ended: a connection that it has not yet accepted would be reset.
func (h *host) ends(verb, name string) {
	h.Helper()
	cmd := h.Docker(h.Context(), verb, "-t", "60", name)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.awaitReal("site", web[name], api.RealDrained, "SIGTERM")
	h.sh("timeout 60 sh -c 'echo > /run/ends/" + name + "'")
	if err := cmd.Wait(); err != nil {
		h.Fatalf("docker %s %s: %v\n%s", verb, name, err, &said)
	}
}

// stopped stops containers one after the other under load.
func (h *host) stopped() {
	over := h.load()
	h.ends("stop", "web-a")
	h.docker("start", "web-a")
	h.awaitReal("site", web["web-a"], api.RealUp, "")
	h.ends("restart", "web-b")
	h.awaitReal("site", web["web-b"], api.RealUp, "")

	// A container that exits immediately on stop is drained first.
	const immediate = "172.30.0.14"
	h.runs("hasty", immediate, "name:hasty")
	h.awaitReal("site", immediate, api.RealUp, "")
	h.fairlead("service", "drain", "site", "hasty", "--wait")
	h.docker("stop", "hasty")
	h.docker("start", "hasty")
	h.awaitReal("site", immediate, api.RealUp, "")
	over()

	// Then it is killed without notice.
	h.answer("hasty", "web-a", "web-b", "web-c")
	h.sh("kill -9 " + h.docker("inspect", "-f", "{{.State.Pid}}", "hasty"))
	h.awaitReal("site", immediate, "", "")
	h.answer("web-a", "web-b", "web-c")
	h.docker("rm", "hasty")
}

// paused pauses a container.
func (h *host) paused() {
	h.docker("pause", "web-a")
	h.awaitReal("site", web["web-a"], api.RealDraining, "paused")
	h.answer("web-b", "web-c")
	h.docker("unpause", "web-a")
	h.awaitReal("site", web["web-a"], api.RealUp, "")
	h.answer("web-a", "web-b", "web-c")
}

// moved renames containers, and disconnects them from the network.
func (h *host) moved() {
	h.fairlead("service", "add", "named", vip+":81", "--interface", "up0", "--real", "name=shop*:80")
	h.docker("rename", "web-a", "shop")
	h.awaitReal("named", web["web-a"], api.RealUp, "")
	h.docker("rename", "shop", "web-a")
	h.drained("named", web["web-a"], "taken out")
	h.fairlead("service", "rm", "named")

	h.docker("network", "disconnect", "net", "web-b")
	h.awaitReal("site", web["web-b"], "", "")
	h.answer("web-a", "web-c")
	h.docker("network", "connect", "--ip", web["web-b"], "net", "web-b")
	h.awaitReal("site", web["web-b"], api.RealUp, "")
	h.answer("web-a", "web-b", "web-c")
}

// unhealthy checks that Docker's own health check decides the state of a real server.
func (h *host) unhealthy() {
	h.sh("mkdir /run/flags; touch /run/flags/well")
	h.call("/containers/create?name=checked",
		`{"Image": "program", "Cmd": ["serve", "name:checked", "tcp:80"], "Labels": {"app": "checked"},
		"Healthcheck": {"Test": ["CMD", "/program", "exists", "/flags/well"], "Interval": 300000000, "Retries": 1},
		"HostConfig": {"NetworkMode": "net", "Binds": ["/run/flags:/flags"]},
		"NetworkingConfig": {"EndpointsConfig": {"net": {"IPAMConfig": {"IPv4Address": "172.30.0.20"}}}}}`)
	h.fairlead("service", "add", "checked", vip+":82", "--interface", "up0", "--real", "label=app=checked:80",
		"--check", "docker", "--interval", "100ms", "--fall", "1", "--rise", "1")
	h.docker("start", "checked")
	h.awaitReal("checked", "172.30.0.20", api.RealUp, "")
	h.sh("rm /run/flags/well")
	h.awaitReal("checked", "172.30.0.20", api.RealDown, "unhealthy")
	h.sh("touch /run/flags/well")
	h.awaitReal("checked", "172.30.0.20", api.RealUp, "")
	h.fairlead("service", "rm", "checked")
	h.docker("rm", "-f", "checked")
	h.sh("rm -r /run/flags")
}

// survivesKills ends and restarts dockerd and the daemon under load.
func (h *host) survivesKills() {
	h.live(true)
	over := h.load()
	h.restart(syscall.SIGKILL)
	h.ends("stop", "web-a")
	h.docker("start", "web-a")
	h.awaitReal("site", web["web-a"], api.RealUp, "")

	// One container is stopped while no daemon listens for Docker's events.
	const missed = "172.30.0.15"
	h.runs("late", missed, "until:/ends/late")
	h.awaitReal("site", missed, api.RealUp, "")
	h.kill()
	h.docker("kill", "--signal", "TERM", "late")
	h.start()
	h.awaitReal("site", missed, api.RealDraining, "SIGTERM")
	for _, at := range web {
		h.awaitReal("site", at, api.RealUp, "")
	}
	over()
	h.docker("kill", "late")
	h.awaitReal("site", missed, "", "")
	h.answer("web-a", "web-b", "web-c")
	h.docker("rm", "late")
	h.live(false)
}

// load makes clients on the LAN send requests to the virtual address until over is called. over
// fails the test if a request has failed.
func (h *host) load() (over func()) {
	h.Helper()
	cmd := h.Command(context.WithoutCancel(h.Context()), "ip", "netns", "exec", "lan", filepath.Join(h.dir, "program"),
		"load", "tcp", vip+":80")
	in, err := cmd.StdinPipe()
	if err != nil {
		h.Fatal(err)
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { in.Close() })
	return func() {
		h.Helper()
		in.Close()
		if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "failed") || said.Len() == 0 {
			h.Errorf("requests fail: %v\n%s", err, &said)
		}
	}
}

// answer fails the test unless exactly these containers answer requests to the virtual addresses.
func (h *host) answer(want ...string) {
	h.Helper()
	for _, at := range []string{vip, vip6} {
		h.answerAt(at, want)
	}
}

func (h *host) answerAt(at string, want []string) {
	h.Helper()
	out := h.sh(fmt.Sprintf("%s %s/program load tcp %s:80 %d", lan, h.dir, at, 4*len(want)))
	var by []string
	for line := range strings.Lines(out) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		by = append(by, name)
	}
	slices.Sort(by)
	if !slices.Equal(by, want) {
		h.Errorf("want answers from %v at %s:\n%s", want, at, out)
	}
}

// fairlead runs a command, which must succeed.
func (h *host) fairlead(args ...string) string {
	h.Helper()
	for i := range args {
		args[i] = strconv.Quote(args[i])
	}
	return h.sh(h.dir + "/fairlead " + strings.Join(args, " "))
}

// client returns a client of the daemon that currently runs.
func (h *host) client() *admin.Client {
	return admin.NewClient(h.Root() + "/run/fairlead/fairlead.sock")
}

// awaitReal waits until the real server of a service has the given state, with the given words in its
// cause. If the state is empty, it waits until the server is not listed.
func (h *host) awaitReal(service, at string, want api.RealStatus, words string) {
	h.Helper()
	var view api.ServiceView
	client := h.client()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if view, err = client.Service(h.Context(), service); err != nil {
			h.Fatal(err)
		}
		is, cause := api.RealStatus(""), ""
		for _, r := range view.Servers {
			if r.Address.String() == at {
				is, cause = r.State, r.Cause
			}
		}
		if is == want && strings.Contains(cause, words) {
			return
		}
	}
	h.Fatalf("%s of service %s does not get the state %q: %+v", at, service, want, view.Servers)
}

// drained waits until the last drain of a real server has begun for a reason that contains the
// given words.
func (h *host) drained(service, at, words string) {
	h.Helper()
	last := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		all, err := h.client().Events(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		for _, e := range all {
			if e.Object == "service "+service+" real "+at+":80" && e.Kind == api.DrainBegun {
				last = e.Detail
			}
		}
		if strings.Contains(last, words) {
			return
		}
	}
	h.Fatalf("the reason of the drain of %s of service %s does not contain %q: %q", at, service, words, last)
}
