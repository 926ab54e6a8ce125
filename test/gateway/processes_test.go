package gateway_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/gateway/serving"
)

// TestProcesses runs the gateway's two processes with the settings that people give the container,
// and kills and stops them.
func TestProcesses(t *testing.T) {
	s := newStack(t)
	s.docker("network", "create", "backends")
	s.replica("web0")
	group := strings.TrimSpace(s.run("stat", "-Lc", "%g", "/var/run/docker.sock"))
	own := strconv.Itoa(serving.User)
	for name, c := range map[string]struct {
		flags []string
		// users are those of the controlling and of the serving process.
		users [2]string
	}{
		"default":   {nil, [2]string{"0", own}},
		"read-only": {[]string{"--read-only"}, [2]string{"0", own}},
		"user":      {[]string{"--user", "1000:1000", "--group-add", group, "--read-only"}, [2]string{"1000", "1000"}},
		"no capabilities": {[]string{"--cap-drop", "ALL", "--cap-add", "NET_BIND_SERVICE", "--security-opt",
			"no-new-privileges"}, [2]string{"0", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatewayContainer{&stack{T: t, engine: s.engine, web: s.web}}
			g.start(c.flags)
			g.wantAnswer()
			all := g.processes()
			if len(all) != 2 || all[0].user != c.users[0] || all[1].user != c.users[1] ||
				all[1].comm != "fairlead-serve" {
				t.Fatalf("processes %v, want users %v", all, c.users)
			}
			if c.users[0] == c.users[1] { // then the user does not keep it from Docker's socket
				status := g.run("cat", "/proc/"+all[1].pid+"/status")
				if !strings.Contains(status, "Seccomp_filters:\t2\n") {
					t.Errorf("the serving process has no filter of system calls of its own:\n%s", status)
				}
			}
			g.run("kill", "-9", all[1].pid)
			g.wantAnswer()
			if now := g.processes(); len(now) != 2 || now[0] != all[0] || now[1].pid == all[1].pid {
				t.Errorf("processes %v, want another one than %s", now, all[1].pid)
			}
			g.docker("stop", "gateway")
			if code := g.docker("inspect", "--format", "{{.State.ExitCode}}", "gateway"); code != "0" {
				t.Errorf("the stopped gateway has exited with %s:\n%s", code, g.logs())
			}
			g.docker("start", "gateway")
			g.wantAnswer()
			last := g.processes()
			g.run("kill", "-9", last[0].pid)
			g.docker("wait", "gateway")
			for _, p := range last {
				if out, err := g.engine.Command(t.Context(), "kill", "-0", p.pid).CombinedOutput(); err == nil {
					t.Errorf("process %v runs on %s", p, out)
				}
			}
		})
	}
}

// gatewayContainer is the container gateway.
type gatewayContainer struct{ *stack }

// start starts the container with more flags, and removes it at the end of the test.
func (g *gatewayContainer) start(flags []string) {
	g.Helper()
	args := append([]string{"run", "-d", "--name", "gateway", "--network", "backends", "-p", "80:80", "-v",
		"/var/run/docker.sock:/var/run/docker.sock"}, flags...)
	g.Cleanup(func() {
		if out, err := g.engine.Run(context.WithoutCancel(g.Context()), "rm", "--force", "gateway"); err != nil {
			g.Errorf("remove the gateway: %v\n%s", err, out)
		}
	})
	g.docker(append(args, "gateway:test", "--entrypoints.web.address=:80", "--providers.docker", "--ping",
		"--entrypoints.traefik.address=:8080", "--accesslog")...)
}

// wantAnswer sends a request, and checks the gateway's health as Docker does.
func (g *gatewayContainer) wantAnswer() {
	g.Helper()
	if got := g.get("http://plain.example.com/", "127.0.0.1:80"); !strings.HasPrefix(got, "200 web0") {
		g.Fatalf("the gateway answers %q\n%s", got, g.logs())
	}
	if said := g.docker("exec", "gateway", "/fairlead", "gateway", "traefik", "--", "healthcheck", "--ping"); !strings.
		HasPrefix(said, "OK") {
		g.Errorf("the check of the gateway's health: %s", said)
	}
}

// running is a process of the container.
type running struct{ pid, user, comm string }

// processes returns the container's processes, the controlling one first.
func (g *gatewayContainer) processes() (all []running) {
	g.Helper()
	lines := strings.Split(g.docker("top", "gateway", "-eo", "pid,ppid,uid,comm"), "\n")
	parents := map[string]string{}
	for _, line := range lines[1:] {
		var p running
		var parent string
		if _, err := fmt.Sscan(line, &p.pid, &parent, &p.user, &p.comm); err != nil {
			g.Fatalf("docker top: %q: %v", line, err)
		}
		parents[p.pid] = parent
		all = append(all, p)
	}
	if len(all) == 2 && parents[all[0].pid] == all[1].pid {
		all[0], all[1] = all[1], all[0]
	}
	return all
}

// run runs a command beside the engine.
func (s *stack) run(command string, args ...string) string {
	s.Helper()
	out, err := s.engine.Command(s.Context(), command, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
	return string(out)
}
